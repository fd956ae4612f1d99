package desk

import (
	"context"
	"io"
	"log/slog"
	"time"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/pipeline"
	"spindle/workflow"
)

// Options say what to run. Repo, Files, Out, Engines and Dir are required.
type Options struct {
	// Repo is the checkout, from Find.
	Repo *Repo
	// Files are the workflow files, of the tree or of Ref.
	Files []workflow.File
	// Ref runs that commit in place of the working tree; empty means the tree with what is not committed.
	Ref string
	// Event is what is simulated; the zero value is a push. Branch, Tag and Target say of what.
	Event               pipeline.Kind
	Branch, Tag, Target string
	// Changed are the files that conditions on paths look at; Unknown finds them out by git.
	Changed workflow.Changed
	Inputs  []pipeline.Input
	// Fork runs the code as a stranger's pull request is run: without secrets.
	Fork bool
	// Only are the workflows that are wanted; none means all that match. What they need runs before them.
	Only []string
	// Step runs that step alone, FromStep it and those after it; a name, or a number from 1.
	Step, FromStep string
	// Secrets are the values that there are.
	Secrets map[string]string
	// Jobs is how many workflows run at a time; 0 means as many as the machine has processors.
	Jobs int

	// Engines are those of this machine, the one to take for others first; Missing says why a well-known one is not
	// among them.
	Engines []engines.Engine
	Missing map[string]string
	// Engine, if not empty, takes the place of what the files say. Strict refuses a workflow whose own engine or image
	// this machine does not have, in place of taking another.
	Engine string
	Strict bool
	// Isolated is false where commands are plain processes.
	Isolated bool
	// InPlace runs in the working tree itself; the engine must have it as its workspace.
	InPlace bool
	// Shell opens a shell on the terminal where a step fails; nil does not.
	Shell func(ctx context.Context, workflow string, m engines.Attempt, c engines.Command, s pipeline.Step) error
	// Dir is where attempts lie. The caller removes it.
	Dir string

	// Out takes output and report. Format is Plain, Terminal or JSON; Width is the terminal's, 0 for 80.
	Out    io.Writer
	Format Format
	Width  func() int
	Colour bool
	ASCII  bool
	// Rerun is the command line that repeats the run, without the names of workflows and steps.
	Rerun string
	Log   *slog.Logger
	Clock clock.Clock
	// Timeout bounds workflows that name none. Zero means an hour.
	Timeout time.Duration
}

// Format is how a run is shown.
type Format string

// The formats.
const (
	Plain    Format = "plain"
	Terminal Format = "tty"
	JSON     Format = "json"
)

// Outcome is how a run ended.
type Outcome struct {
	// Status is the pipeline's.
	Status pipeline.Status
	// Workflows are in the order of the plan.
	Workflows []pipeline.Workflow
}

// The DIDs that stand for repositories and people of the desk.
const (
	deskRepo = "did:web:desk.invalid"
	forkRepo = "did:web:fork.invalid"
	deskYou  = "did:web:you.invalid"
)

// features are what the desk carries out; what engines do is theirs to say.
func capabilities() workflow.Capabilities {
	c := workflow.ThisVersion()
	c.Server = append(c.Server, workflow.FeatureNeeds, workflow.FeatureIf, workflow.FeatureMatrix, workflow.FeatureConcurrency,
		workflow.FeatureInputs, workflow.FeatureDeploysTo, workflow.FeatureApproval, workflow.FeatureRetry, workflow.FeatureSecrets,
		workflow.FeatureStepIf, workflow.FeatureContinueOnError, workflow.FeatureShell, workflow.FeatureWorkingDirectory)
	return c
}

// discard is a logger that says nothing.
func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
