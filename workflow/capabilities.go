package workflow

import (
	"slices"
	"strings"
)

// Feature is a part of the language that a server or an engine may not carry out yet. It is named like the key.
type Feature string

// The features that the server carries out, whatever the engine.
const (
	FeatureNeeds       Feature = "needs"
	FeatureIf          Feature = "if" // of a workflow
	FeatureMatrix      Feature = "matrix"
	FeatureConcurrency Feature = "concurrency"
	FeatureInputs      Feature = "inputs"
	FeatureDeploysTo   Feature = "deploys_to"
	FeatureApproval    Feature = "approval"
	FeatureRetry       Feature = "retry"
)

// The features of steps, which the runner carries out.
const (
	FeatureSecrets          Feature = "secrets" // lists, of a workflow or a step
	FeatureStepIf           Feature = "steps.if"
	FeatureContinueOnError  Feature = "steps.continue_on_error"
	FeatureShell            Feature = "steps.shell"
	FeatureWorkingDirectory Feature = "steps.working_directory"
)

// The features that differ by engine.
const (
	FeatureImage        Feature = "image" // of engine sandbox, other than host
	FeatureDependencies Feature = "dependencies"
	FeatureServices     Feature = "services"
	FeatureNetwork      Feature = "network"
	FeatureCache        Feature = "cache"
	FeatureArtifacts    Feature = "artifacts"
	FeatureReports      Feature = "reports"
)

// lenient tells whether a workflow that asks for f may run where f is not carried out, with a note. The others decide
// what may run at all, and when, and with which secrets: to run such a workflow all the same would be to run
// something else, so it is refused.
func (f Feature) lenient() bool {
	switch f {
	case FeatureImage, FeatureDependencies, FeatureServices, FeatureNetwork, FeatureCache, FeatureArtifacts, FeatureReports,
		FeatureRetry:
		return true
	}
	return false
}

// key is the key of the file that asks for f.
func (f Feature) key() string { return strings.TrimPrefix(string(f), "steps.") }

// without says what happens where a lenient f is not carried out.
func (f Feature) without() string {
	switch f {
	case FeatureImage:
		return "the steps run in the engine's own image"
	case FeatureDependencies:
		return "the steps have what the image has"
	case FeatureServices:
		return "no service is started"
	case FeatureNetwork:
		return "the steps have the network that the server gives to all"
	case FeatureCache:
		return "nothing is kept between runs"
	case FeatureArtifacts:
		return "no file is kept after the run"
	case FeatureReports:
		return "no report is read"
	case FeatureRetry:
		return "the server decides what it repeats"
	}
	return "it has no effect"
}

// Capabilities are what a server carries out.
type Capabilities struct {
	// Server are the features that it has with every engine.
	Server []Feature
	// Engines are those that it has with one engine only, by the engine's name.
	Engines map[string][]Feature
}

// Has tells whether f is carried out for a workflow of that engine.
func (c Capabilities) Has(engine string, f Feature) bool {
	return slices.Contains(c.Server, f) || slices.Contains(c.Engines[engine], f)
}

// ThisVersion is what the server and the engines of this version carry out: the server compiles with it, and the
// linter where it is told of no other. Whoever makes a feature real adds it here.
func ThisVersion() Capabilities {
	return Capabilities{
		Server: []Feature{
			FeatureNeeds, FeatureIf, FeatureMatrix, FeatureConcurrency, FeatureInputs, FeatureDeploysTo, FeatureApproval, FeatureRetry,
			FeatureSecrets, FeatureStepIf, FeatureContinueOnError, FeatureShell, FeatureWorkingDirectory,
		},
		Engines: map[string][]Feature{
			Sandbox: {FeatureImage, FeatureDependencies},
			Microvm: {FeatureImage, FeatureDependencies, FeatureServices},
			Nixery:  {FeatureDependencies},
			// What runs nothing carries out what runs nowhere.
			Dummy: {FeatureImage, FeatureDependencies, FeatureServices, FeatureNetwork, FeatureCache, FeatureArtifacts, FeatureReports},
		},
	}
}

// NotCarried says that a key of a workflow has no effect here.
type NotCarried struct {
	Feature Feature `json:"feature"`
	// Line and Column are those of the key.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Why    string `json:"why"` // one sentence
}
