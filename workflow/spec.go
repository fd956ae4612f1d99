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
//
// Parse fills in what the file says. Compile makes one Spec of it for each cell of the matrix and fills in
// what only the trigger and the sibling files know: Cell, Given, WaitsFor and Settled.
type Spec struct {
	// Name is what people read: the file's `name`, or else its file name without the ending. Compile adds the cell.
	Name string `json:"name"`
	// File is the path that was parsed.
	File string `json:"file"`
	// When holds the conditions, any of which may match. No condition at all matches every event.
	When []Condition `json:"when,omitempty"`

	// Needs names the workflows of the pipeline that must come before this one, by file name without the ending
	// and in the file's order. WaitsFor and Settled are what they come to.
	Needs []string `json:"needs,omitempty"`
	// WaitsFor names the planned workflows (Planned.Name) that must have ended before this one is decided on:
	// for a need with a matrix every cell of it. Sorted.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// Settled are the needs that are known without waiting: those whose file this trigger does not start, which
	// count as skipped, and those that an earlier run has done (Input.Earlier). In the order of Needs.
	Settled []Settled `json:"settled,omitempty"`
	// If decides whether the workflow runs once everything in WaitsFor has ended; empty means success().
	// Ask it through Decide.
	If Expr `json:"if,omitempty"`

	// Matrix is what the file asks for; nil when it has none. Cells spells it out.
	Matrix *Matrix `json:"matrix,omitempty"`
	// Cell is which cell of the matrix this is, in the order of the axes; empty without a matrix. Steps see each
	// as a variable (CellEnvironment).
	Cell []Env `json:"cell,omitempty"`
	// Concurrency allows one run of a group at a time; nil means that nothing is in the way.
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	// Inputs are what a manual run may hand over, in the file's order.
	Inputs []Declared `json:"inputs,omitempty"`
	// Given are the values of the inputs in this run: what was sent, else the default; an input that has neither
	// is left out. Inputs that nobody declared are here only if the file declares none at all. Steps see each as
	// TANGLED_INPUT_<KEY> (see InputVariable).
	Given []Env `json:"given,omitempty"`
	// DeploysTo names the environment, with its own secrets and approvals, that the workflow changes; empty means
	// none. It is lower-case letters, digits and dashes.
	DeploysTo string `json:"deploysTo,omitempty"`
	// Approval, if not nil, holds the workflow until a person has approved this very run.
	Approval *Approval `json:"approval,omitempty"`

	// RunsOn names the labels that a runner must have, all of them.
	RunsOn []string `json:"runsOn,omitempty"`
	// Engine is one of the names above; Sandbox when the file names none.
	Engine string `json:"engine"`
	// Image is what the file asks for; empty means the engine's default. Sandbox: HostImage or the reference of an
	// OCI image. Microvm: the name of a machine image.
	Image        string       `json:"image,omitempty"`
	Dependencies Dependencies `json:"dependencies,omitzero"`
	// Services are containers beside the steps, on the run's own network, in the file's order. The microvm engine
	// has its own kind, in Microvm.
	Services []Service `json:"services,omitempty"`
	// Network is where steps may connect to.
	Network Network `json:"network,omitzero"`
	// Microvm holds the keys that only that engine has; nil when the file has none of them.
	Microvm     *MicrovmSpec `json:"microvm,omitempty"`
	Clone       Clone        `json:"clone"`
	Environment []Env        `json:"environment,omitempty"`
	// Secrets says which secrets the steps get that say nothing themselves. Trust comes first: what an untrusted
	// run may not have, no file can ask for.
	Secrets Secrets `json:"secrets,omitzero"`
	// Audience, if not empty, asks for an ID token with that `aud`.
	Audience  string     `json:"audience,omitempty"`
	Cache     []Cache    `json:"cache,omitempty"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Reports   []Report   `json:"reports,omitempty"`
	// Timeout is how long an attempt may take; zero means the server's default.
	Timeout time.Duration `json:"timeout,omitempty"`
	// Retry says which ends of an attempt are followed by another one; nil means what the server does by itself
	// when its own machinery fails.
	Retry *Retry `json:"retry,omitempty"`
	Steps []Step `json:"steps"`
	// NotCarried are the keys of the file that have no effect here, as Compile found; the log of the run says so.
	NotCarried []NotCarried `json:"notCarried,omitempty"`
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

// Settled is a need that does not run in this pipeline. Why is one sentence, empty when it had run before.
type Settled struct {
	Name string `json:"name"`
	Need
	Why string `json:"why,omitempty"`
}

// Matrix are the axes of a workflow that runs once for each combination of their values, in the file's order.
// Values are texts as the file has them: 1.10 stays 1.10.
type Matrix struct {
	Axes []Axis `json:"axes,omitempty"`
	// Include are cells, or additions to cells; Exclude are cells, or parts of cells, that are left out. Cells has
	// the rules.
	Include [][]Env `json:"include,omitempty"`
	Exclude [][]Env `json:"exclude,omitempty"`
}

// Axis is one dimension of a matrix.
type Axis struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// Concurrency says that at most one workflow of a group runs at a time, in one repository. Of those that wait
// for it the newest stays, and the others end as superseded.
type Concurrency struct {
	// Group is the name of the group, with templates.
	Group Template `json:"group"`
	// Cancel says that a newer workflow of the group also ends the one that runs.
	Cancel bool `json:"cancel,omitempty"`
}

// The types of inputs.
const (
	InputString  = "string"
	InputBoolean = "boolean"
	InputChoice  = "choice"
	InputNumber  = "number"
)

// Declared is one input that the file declares.
type Declared struct {
	Key string `json:"key"`
	// About is the file's `description`, for the form that people fill in.
	About string `json:"about,omitempty"`
	// Type is one of the names above.
	Type string `json:"type"`
	// Options are the values of a choice.
	Options []string `json:"options,omitempty"`
	// Default is what the input is when nobody sends it; nil means that it has none.
	Default *string `json:"default,omitempty"`
	// Required says that a manual run must send it, unless it has a default.
	Required bool `json:"required,omitempty"`
}

// Who may approve: those who may change the repository, or its owner alone.
const (
	ByCollaborator = "collaborator"
	ByOwner        = "owner"
)

// Approval says who must agree before a workflow starts.
type Approval struct {
	// By is ByCollaborator (the owner included) or ByOwner.
	By string `json:"by"`
	// OthersOnly refuses the approval of whoever caused the run.
	OthersOnly bool `json:"othersOnly,omitempty"`
	// Expires is how long the workflow waits before it ends as expired; zero means the server's default.
	Expires time.Duration `json:"expires,omitempty"`
}

// Dependencies are the packages that the steps need: a plain list (microvm, sandbox) or lists by registry
// (nixery, sandbox), in the file's order.
type Dependencies struct {
	Packages   []string   `json:"packages,omitempty"`
	Registries []Registry `json:"registries,omitempty"`
}

// Registry is a source of packages and what is wanted from it.
type Registry struct {
	Name     string   `json:"name"`
	Packages []string `json:"packages"`
}

// Service is a container that runs beside the steps. Steps reach it under its name.
type Service struct {
	Name        string `json:"name"` // a host name: lower-case letters, digits and dashes
	Image       string `json:"image"`
	Environment []Env  `json:"environment,omitempty"`
	// Ports are those it listens on, 1 to 65535.
	Ports []int `json:"ports,omitempty"`
	// Ready is a command that succeeds inside the service once it can be used; the steps begin then. Empty means
	// that its ports accept, or without ports that it has started.
	Ready string `json:"ready,omitempty"`
}

// What a network lets through.
const (
	NetworkNone     = "none"
	NetworkInternet = "internet"
	NetworkHosts    = "hosts"
)

// Network is where steps may connect to, services and the server's own endpoints apart.
type Network struct {
	// Mode is one of the names above; empty means the server's default.
	Mode string `json:"mode,omitempty"`
	// Hosts, with NetworkHosts, are names, or *. and a name for all below it, each with :port or without.
	Hosts []string `json:"hosts,omitempty"`
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

// Secrets is a choice among the secrets that a run may have. The zero value chooses nothing: all of them for a
// workflow, what the workflow says for a step.
type Secrets struct {
	// Only says that the file has a list, be it empty: nothing but Names is given.
	Only  bool     `json:"only,omitempty"`
	Names []string `json:"names,omitempty"`
}

// When something is kept: a cache saved, an artifact taken.
const (
	CacheOnSuccess = "on-success"
	CacheAlways    = "always"

	OnSuccess = "on-success"
	OnFailure = "on-failure"
	Always    = "always"
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

// Artifact is a set of files that is kept after the run.
type Artifact struct {
	// Name is unique in the workflow and can be a file name.
	Name string `json:"name"`
	// Paths are patterns of files below the folder of the clone; "!" in front excludes.
	Paths []string `json:"paths"`
	// When is OnSuccess, OnFailure or Always.
	When string `json:"when"`
	// Retention is how long it is kept at least; zero means the server's default.
	Retention time.Duration `json:"retention,omitempty"`
}

// The types of reports, and the formats of coverage.
const (
	ReportJUnit    = "junit"
	ReportCoverage = "coverage"
	ReportSARIF    = "sarif"
	ReportMarkdown = "markdown"

	FormatLcov      = "lcov"
	FormatCobertura = "cobertura"
	FormatGo        = "go"
)

// Report is a set of files that the server reads after the steps, whether they passed or not.
type Report struct {
	Type string `json:"type"`
	// Format is that of a coverage report; empty means that the content tells.
	Format string `json:"format,omitempty"`
	// Paths are patterns of files below the folder of the clone; "!" in front excludes.
	Paths []string `json:"paths"`
}

// The ends that an attempt may be repeated after: a fault that is not the code's, a step that did not pass, and
// time that was up.
const (
	RetryInfrastructure = "infrastructure"
	RetryFailure        = "failure"
	RetryTimeout        = "timeout"
)

// Retry says when an attempt is followed by another one.
type Retry struct {
	// Max is how many attempts may follow the first; 0 means none.
	Max int `json:"max"`
	// On are the ends that count, of the names above, at least one.
	On []string `json:"on"`
}

// Step is one command, run in the clone's folder after the steps before it.
type Step struct {
	// Name is the file's, or else the first line of the command.
	Name    string `json:"name"`
	Command string `json:"command"`
	// If decides whether the step runs, when its turn comes; empty means success(). Ask it through DecideStep.
	If          Expr  `json:"if,omitempty"`
	Environment []Env `json:"environment,omitempty"`
	// Secrets, where it is Only, takes the place of the workflow's; see StepSecrets.
	Secrets Secrets `json:"secrets,omitzero"`
	// Timeout is how long the step may take; zero means that only the workflow's limits it.
	Timeout time.Duration `json:"timeout,omitempty"`
	// ContinueOnError says that the steps after it, and the workflow, go on as if it had passed, even if it does
	// not: failed or out of its own time. It is still shown as what it was.
	ContinueOnError bool `json:"continueOnError,omitempty"`
	// Shell is the program that the command is handed to, as in <shell> -c <command>; empty means bash where the
	// machine has it, else sh.
	Shell string `json:"shell,omitempty"`
	// WorkingDirectory is where the command starts, below the folder of the clone; empty means that folder.
	WorkingDirectory string `json:"workingDirectory,omitempty"`
}
