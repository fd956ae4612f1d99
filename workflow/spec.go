package workflow

import (
	"encoding/json"
	"time"
)

// The engines that a file may name. Which of them a server offers is the server's to say.
const (
	Sandbox = "sandbox"
	Nixery  = "nixery"
	Microvm = "microvm"
	Dummy   = "dummy"
)

// HostImage is the sandbox's read-only view of the machine that it runs on.
const HostImage = "host"

// Spec is one workflow file, checked and with its defaults filled in. It is stored as JSON when a pipeline
// is planned, and what runs is that JSON: the file is never read again.
type Spec struct {
	// Name is what people read: the file's `name`, or else its file name without the ending.
	Name string `json:"name"`
	// File is the path that was parsed.
	File string `json:"file"`
	// When holds the conditions, any of which may match. No condition at all matches every event.
	When []Condition `json:"when,omitempty"`
	// Engine is one of the names above; Sandbox when the file names none.
	Engine string `json:"engine"`
	// Image is what the file asks for; empty means the engine's default.
	Image        string       `json:"image,omitempty"`
	Dependencies Dependencies `json:"dependencies,omitzero"`
	// Microvm holds the keys that only that engine has; nil when the file has none of them.
	Microvm *MicrovmSpec `json:"microvm,omitempty"`
	// RunsOn names the labels that a runner must have, all of them.
	RunsOn      []string `json:"runsOn,omitempty"`
	Clone       Clone    `json:"clone"`
	Environment []Env    `json:"environment,omitempty"`
	// Audience, if not empty, asks for an ID token with that `aud`.
	Audience string  `json:"audience,omitempty"`
	Cache    []Cache `json:"cache,omitempty"`
	// Timeout is how long an attempt may take; zero means the server's default.
	Timeout time.Duration `json:"timeout,omitempty"`
	Steps   []Step        `json:"steps"`
}

// Condition is one entry of `when`.
type Condition struct {
	Event    []string   `json:"event"`
	Branch   []string   `json:"branch,omitempty"`
	Tag      []string   `json:"tag,omitempty"`
	Types    []string   `json:"types,omitempty"`
	Paths    []string   `json:"paths,omitempty"`
	Schedule []Schedule `json:"schedule,omitempty"`
}

// Schedule is one time table. Cron is as written, with its H tokens; Timezone is an IANA name.
type Schedule struct {
	Cron     string `json:"cron"`
	Timezone string `json:"timezone"`
}

// Dependencies are the packages that the steps need: a plain list (microvm) or lists by registry (nixery),
// in the file's order.
type Dependencies struct {
	Packages   []string   `json:"packages,omitempty"`
	Registries []Registry `json:"registries,omitempty"`
}

// Registry is a source of packages and what is wanted from it.
type Registry struct {
	Name     string   `json:"name"`
	Packages []string `json:"packages"`
}

// MicrovmSpec holds what only the microvm engine reads. Services and Virtualisation are handed to NixOS and
// are kept as JSON with the types that YAML gives them.
type MicrovmSpec struct {
	Registry       []Env           `json:"registry,omitempty"`     // name -> flake reference
	Substituters   []Env           `json:"substituters,omitempty"` // URL -> public key
	Services       json.RawMessage `json:"services,omitempty"`
	Virtualisation json.RawMessage `json:"virtualisation,omitempty"`
}

// Clone says how the repository is fetched before the first step. Depth is in commits, at least 1.
type Clone struct {
	Skip       bool `json:"skip"`
	Depth      int  `json:"depth"`
	Submodules bool `json:"submodules"`
	Tags       bool `json:"tags"`
	LFS        bool `json:"lfs"`
}

// Env is one variable. Value is the text of the file, never re-printed.
type Env struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// When a cache is saved.
const (
	CacheOnSuccess = "on-success"
	CacheAlways    = "always"
)

// Cache is a set of paths that is kept between runs.
type Cache struct {
	Key      string   `json:"key"`
	Paths    []string `json:"paths"`
	Hash     []string `json:"hash,omitempty"` // files whose content is part of the key
	Fallback bool     `json:"fallback"`
	// CompressionLevel is 1 to 19, or 0 for the server's choice.
	CompressionLevel int    `json:"compressionLevel,omitempty"`
	When             string `json:"when"`
}

// Step is one command, run in the clone's folder after the step before it has passed.
type Step struct {
	// Name is the file's, or else the first line of the command.
	Name        string `json:"name"`
	Command     string `json:"command"`
	Environment []Env  `json:"environment,omitempty"`
	// Timeout is how long the step may take; zero means that only the workflow's limits it.
	Timeout time.Duration `json:"timeout,omitempty"`
}
