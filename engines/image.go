package engines

// Image is the root file system of an image that lies ready on this machine, and what the image says of how to run
// in it. It is what a store of images gives to an engine.
type Image struct {
	// Name is the image as it was asked for, Digest the manifest that was chosen.
	Name, Digest string
	// Root is the folder. It is shared with other attempts, so it is only read.
	Root string
	// Env is the image's environment, NAME=value. It has a PATH.
	Env []string
	// UID, GID and User are the account that commands run as.
	UID, GID int
	User     string
	// Bash and Git say that the image has these.
	Bash, Git bool
	// Release gives the folder free. It may be called more than once.
	Release func()
}

// ImageRequest asks for an image.
type ImageRequest struct {
	// Name is a reference as people write them, such as "golang:1.26" or "ghcr.io/owner/image@sha256:…".
	Name string
	// Untrusted and Progress are as in Spec.
	Untrusted bool
	Progress  func(line string)
}
