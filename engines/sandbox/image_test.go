package sandbox_test

import (
	"archive/tar"
	"bytes"
	"context"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/stretchr/testify/require"

	"spindle/engines"
	"spindle/engines/enginetest"
	"spindle/engines/images"
	"spindle/engines/images/imagestest"
	"spindle/engines/sandbox"
	"spindle/engines/sandbox/sandboxtest"
)

// TestConformanceImage: everything that an engine must do holds in an image from a registry too.
func TestConformanceImage(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	ref := reg.Push(t, "tools:1", imagestest.Image(t, v1.Config{}, imagestest.Tools(t, "git")))
	store := imagestest.NewStore(t)
	var state string
	e := sandboxtest.New(t, func(c *sandbox.Config) { c.Images, state = mirrored{store, reg.Host}, c.StateDir })
	enginetest.Run(t, enginetest.Suite{
		Engine: e, Machine: true, Image: ref, OwnTools: true,
		Left: func() ([]string, error) { return left(state) },
	})
	store.Collect(0)
	require.Zero(t, store.Used(), "no attempt holds its image any more")
}

// mirrored asks the test's registry for what names none.
type mirrored struct {
	store *images.Store
	host  string
}

func (m mirrored) Acquire(ctx context.Context, r engines.ImageRequest) (*engines.Image, error) {
	if !strings.Contains(r.Name, "/") {
		local := r
		local.Name = m.host + "/" + r.Name
		img, err := m.store.Acquire(ctx, local)
		if err != nil { // with the name as it was asked for
			return nil, engines.Fault(strings.ReplaceAll(strings.ReplaceAll(engines.Public(err), m.host+"/", ""), "/", ""), err)
		}
		return img, nil
	}
	return m.store.Acquire(ctx, r)
}

// TestImageIsHonoured: environment, user and PATH are the image's; the machine's tools are not there.
func TestImageIsHonoured(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	extra := imagestest.Layer(t, imagestest.Tar(t,
		imagestest.File("etc/passwd", "root:x:0:0::/root:/bin/sh\nbuilder:x:4711:4712::/home/builder:/bin/sh\n", 0o644),
		imagestest.File("opt/tool/bin/hello", "#!/bin/sh\necho hello from the image\n", 0o755),
		imagestest.File("opt/secret", "x", 0o600), imagestest.File("usr/bin/evil", "#!/bin/sh\nid -u\n", 0o4755),
		tar.Header{Typeflag: tar.TypeBlock, Name: "dev/sda", Mode: 0o666, Devmajor: 8},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "srv/host", Linkname: "/../../../../etc/shadow"},
	))
	ref := reg.Push(t, "tools:1", imagestest.Image(t, v1.Config{
		Env: []string{"PATH=/opt/tool/bin:/usr/bin:/bin", "LEVEL=image", "KEPT=yes", "HOME=/wrong"}, User: "builder", WorkingDir: "/opt",
	}, imagestest.Tools(t), extra))
	store := imagestest.NewStore(t)
	e := sandboxtest.New(t, func(c *sandbox.Config) { c.Images = store })
	var said []string
	a := open(t, e, engines.Spec{Image: ref, Env: []string{"LEVEL=workflow"}, Progress: func(l string) { said = append(said, l) }})
	require.Contains(t, strings.Join(said, "\n"), "is ready after")
	sh := func(script string, asRoot bool) string {
		var out bytes.Buffer
		_, err := a.Run(t.Context(), engines.Command{Script: script, Stdout: &out, Stderr: &out, AsRoot: asRoot})
		require.NoError(t, err)
		return out.String()
	}
	require.Equal(t, "hello from the image\nworkflow yes /home/spindle-workflow builder\n", sh("hello; echo $LEVEL $KEPT $HOME $USER", false))
	require.Equal(t, "4711 4712 builder /workspace/repo\n", sh("echo $(id -u) $(id -g) $(id -un) $(pwd)", false))
	require.Equal(t, "", sh("touch here ~/there", false), "workspace and home are the user's")
	require.Equal(t, "4711\n", sh("evil", false), "nobody becomes root")
	require.Contains(t, sh("cat /opt/secret", false), "denied")
	require.Equal(t, "x0\n", sh("cat /opt/secret; id -u", true))
	require.Contains(t, sh("cat /dev/sda /srv/host", true), "No such file")
	require.Contains(t, sh("perl -e 1", false), "not found", "the machine's own tools are not there")
	require.Contains(t, sh("git --version", false), "git version", "but for git, which the checkout needs")
	require.Equal(t, "first\n", sh("git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -m first && git log --format=%s", false))
	require.Contains(t, sh("echo x > /spindle/tools/git", true), "Read-only")
	require.NoError(t, a.Close(t.Context()))

	// What an attempt does to its image is its own.
	b := open(t, e, engines.Spec{Image: ref})
	res, err := b.Run(t.Context(), engines.Command{Script: "rm -rf /usr/bin/ls /etc/passwd && echo bad > /opt/tool/bin/hello && chmod 777 /opt", AsRoot: true})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.NoError(t, b.Close(t.Context()))
	a = open(t, e, engines.Spec{Image: ref})
	require.Equal(t, "hello from the image\nbuilder\n", sh("hello; id -un; ls / > /dev/null", false))
}

// TestImageWithoutBash: the default shell is sh there, and asking for bash is the job's error.
func TestImageWithoutBash(t *testing.T) {
	t.Parallel()
	reg := imagestest.NewRegistry(t, false)
	none := imagestest.Layer(t, imagestest.Tar(t, imagestest.File("usr/bin/.wh.bash", "", 0o644)))
	ref := reg.Push(t, "tools:1", imagestest.Image(t, v1.Config{}, imagestest.Tools(t), none))
	e := sandboxtest.New(t, func(c *sandbox.Config) { c.Images, c.NoHost, c.DefaultImage = imagestest.NewStore(t), true, ref })
	a := open(t, e, engines.Spec{})
	var out, errs bytes.Buffer
	res, err := a.Run(t.Context(), engines.Command{Script: "echo $0", Stdout: &out})
	require.NoError(t, err)
	require.Equal(t, "0 sh\n", string('0'+rune(res.ExitCode))+" "+out.String())
	res, err = a.Run(t.Context(), engines.Command{Script: "true", Shell: "bash", Stderr: &errs})
	require.NoError(t, err)
	require.Equal(t, 127, res.ExitCode)
	require.Contains(t, errs.String(), "not found in this image")

	_, err = e.Open(t.Context(), engines.Spec{ID: "x", Image: engines.ImageHost})
	require.ErrorIs(t, err, engines.ErrUnknownImage)
	require.Contains(t, engines.Public(err), "not allowed on this spindle")
	_, err = e.Open(t.Context(), engines.Spec{ID: "x", Needs: []string{"virtualisation"}})
	require.ErrorIs(t, err, engines.ErrBadSpec)
	require.Contains(t, engines.Public(err), "virtualisation")
	_, err = e.Open(t.Context(), engines.Spec{ID: "x", Packages: map[string][]string{"nixpkgs": {"go"}}})
	require.ErrorIs(t, err, engines.ErrBadSpec)
	_, err = sandbox.New(sandbox.Config{Runsc: "/bin/sh", StateDir: sandboxtest.Dir(t), NoHost: true})
	require.ErrorContains(t, err, "there must be a store")
}
