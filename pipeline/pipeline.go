package pipeline

import "time"

// ID names a pipeline: a TID, unique to this spindle.
type ID string

// Pipeline is what one trigger started.
type Pipeline struct {
	ID      ID      `json:"id"`
	Repo    string  `json:"repo"`  // repo DID
	Owner   string  `json:"owner"` // DID of the owner when it was planned
	Trigger Trigger `json:"trigger"`
	Trust   Trust   `json:"trust"`
	// RepoName is the repository's display name and Knot its host when it was planned.
	RepoName string `json:"repoName"`
	Knot     string `json:"knot"`
	// DefaultBranch is the repository's, as its manifest said; empty when unknown.
	DefaultBranch string `json:"defaultBranch,omitempty"`
	// Title is the first line of the commit's message; empty when unknown.
	Title string `json:"title,omitempty"`
	// Status sums up the workflows (Summarize).
	Status Status `json:"status"`
	// Note says what a person should know of the pipeline as a whole, such as why it is held.
	Note       string     `json:"note,omitempty"`
	ApprovedBy string     `json:"approvedBy,omitempty"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt time.Time  `json:"finishedAt,omitzero"`
	Workflows  []Workflow `json:"workflows"`
}

// Workflow is one workflow file as it runs in a pipeline.
type Workflow struct {
	Pipeline ID     `json:"pipeline"`
	Name     string `json:"name"` // file name without its ending; unique in the pipeline
	File     string `json:"file"` // path in the repository
	// Spec is the compiled workflow as JSON (workflow.Spec), and Digest the SHA-256 of the file it came from, in hex.
	// What runs is Spec; the file is never read again.
	Spec   []byte   `json:"-"`
	Digest string   `json:"digest"`
	Engine string   `json:"engine"`
	Labels []string `json:"labels,omitempty"` // runs_on
	Status Status   `json:"status"`
	// Rules are what orders the workflow among others; Gate is what it stands at, and HeldUntil when the patience at a
	// gate that needs a person ends.
	Rules     Rules     `json:"rules,omitzero"`
	Gate      Gate      `json:"gate,omitempty"`
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Reason says in one sentence why the workflow stands where it stands, where that is not plain.
	Reason string `json:"reason,omitempty"`
	// Attempt counts the executions so far; Epoch is the fence of the current one.
	Attempt int   `json:"attempt"`
	Epoch   int64 `json:"epoch"`
	// LeaseUntil is when the current attempt's right to run ends, unless renewed.
	LeaseUntil time.Time `json:"leaseUntil,omitzero"`
	// CancelBy is the DID that asked for an end, or "spindle"; empty when nobody did.
	CancelBy   string    `json:"cancelBy,omitempty"`
	ExitCode   int       `json:"exitCode"`
	CreatedAt  time.Time `json:"createdAt"`
	ReadyAt    time.Time `json:"readyAt,omitzero"` // when a runner might first have taken it
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	Steps      []Step    `json:"steps,omitempty"`
}

// StepKind tells the spindle's own steps from those of the workflow file.
type StepKind string

// The kinds of step.
const (
	SystemStep StepKind = "system"
	UserStep   StepKind = "user"
)

// Step is one command of a workflow.
type Step struct {
	Index      int       `json:"index"`
	Name       string    `json:"name"`
	Command    string    `json:"command,omitempty"`
	Kind       StepKind  `json:"kind"`
	Status     Status    `json:"status"`
	ExitCode   int       `json:"exitCode"`
	Reason     string    `json:"reason,omitempty"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
}

// Lease is the right to run one attempt of a workflow.
type Lease struct {
	Pipeline ID        `json:"pipeline"`
	Workflow string    `json:"workflow"`
	Attempt  int       `json:"attempt"`
	Epoch    int64     `json:"epoch"`
	Holder   string    `json:"holder"`
	Until    time.Time `json:"until"`
}

// Change is one numbered change of a pipeline, a workflow or a step, as the feed tells it.
type Change struct {
	Number   int64     `json:"number"`
	Pipeline ID        `json:"pipeline"`
	Repo     string    `json:"repo"`
	Workflow string    `json:"workflow,omitempty"` // empty: the pipeline itself
	Step     int       `json:"step"`               // -1: not a step
	Status   Status    `json:"status"`
	Reason   string    `json:"reason,omitempty"`
	ExitCode int       `json:"exitCode"`
	At       time.Time `json:"at"`
}
