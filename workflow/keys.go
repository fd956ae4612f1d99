package workflow

import (
	"sync"
	"time"
)

// key is one key of the language as this version offers it. The parser takes the keys of these tables and no
// others, asks for those that are required, and the JSON Schema is made of them.
type key struct {
	name  string
	about string // one sentence, for people
	// need is what to write where the key is missing; empty when it may be.
	need  string
	value form
}

// Bounds that the parser and the schema share and no server sets.
const (
	nameLimit     = 100 // bytes of display names and other short words
	imageLimit    = 512
	audienceLimit = 256
	cacheKeyLimit = 256
	cronLimit     = 200
	textLimit     = 4096 // bytes of one entry of a list
	variableLimit = 200  // bytes of the name of a variable
	labelsLimit   = 32
	cachesLimit   = 50
	tablesLimit   = 20 // time tables of one condition
	wordsLimit    = 20 // events or types of one condition
	depthLimit    = 1_000_000
	levelLimit    = 19 // of compression

	needsLimit     = 64
	axesLimit      = 16
	cellValueLimit = 256 // bytes
	inputsLimit    = 50
	optionsLimit   = 100
	aboutLimit     = 500  // bytes
	inputBytes     = 4096 // of a value that is sent
	secretLimit    = 50   // bytes of a name
	servicesLimit  = 20
	portsLimit     = 20
	artifactsLimit = 50
	reportsLimit   = 50
	retryMost      = 10
	approvalMost   = 30 * 24 * time.Hour
	retentionMost  = 3650 * 24 * time.Hour
)

var workflowKeys = sync.OnceValue(func() []key {
	return []key{
		{"name", "The name that people read; without it, the file name without its ending.", "", word(nameLimit)},
		{"when", "What starts the workflow; any condition may match, and without one every event does.", "", listOf(conditionKeys, 0, func(l Limits) int { return l.Conditions })},
		{"needs", "Workflows that must have passed first, by file name without the ending.", "", needs()},
		{"if", "An expression; without it, success().", "", expression()},
		{"matrix", "Runs once for each combination of the values of its axes.", "", matrix()},
		{"concurrency", "At most one run of a group at a time; the newest waits.", "", oneForm(template(), object(concurrencyKeys))},
		{"inputs", "What a manual run may hand over.", "", mapOf(wordKey.String(), inputsLimit, inputForm())},
		{"deploys_to", "The environment that it changes, with its own secrets and approvals.", "", word(nameLimit).with(rules{"pattern": environmentName.String()})},
		{"approval", "A person must approve before it starts.", "", object(approvalKeys)},
		{"runs_on", "Labels, all of which the runner must have.", "", labels()},
		{"engine", "What runs the steps; without it, sandbox.", "", oneOf(engines())},
		{"image", "Sandbox: host, or an OCI image. Microvm: the name of an image.", "", word(imageLimit)},
		{"dependencies", "Packages. Nixery: lists by registry. Microvm: a list. Sandbox: either.", "", packages()},
		{"services", "Containers beside the steps, by host name. Microvm: NixOS services.", "", options()},
		{"network", "Where steps may connect to: none, internet, or a list of hosts.", "", network()},
		{"clone", "How the repository is fetched before the first step.", "", object(cloneKeys)},
		{"environment", "Variables of every step, names to texts.", "", variables()},
		{"secrets", "The secrets that its steps get; without it all of the run's, [] for none.", "", secretNames()},
		{"audience", "Asks for an ID token with this aud; not a DID.", "", audience()},
		{"cache", "What is kept between runs.", "", listOf(cacheKeys, 0, func(Limits) int { return cachesLimit })},
		{"artifacts", "Files that are kept after the run.", "", listOf(artifactKeys, 0, func(Limits) int { return artifactsLimit })},
		{"reports", "Files that the server reads: test results, coverage, findings, notes.", "", listOf(reportKeys, 0, func(Limits) int { return reportsLimit })},
		{"retry", "When an attempt is followed by another one.", "", object(retryKeys)},
		{"timeout", "How long an attempt may take, such as 20m; without it, the server's.", "", duration()},
		{
			"steps", "Commands, run one after another until one fails.", `add steps: [{name: test, command: "make test"}]`,
			listOf(stepKeys, 1, func(l Limits) int { return l.Steps }),
		},
		{"registry", "Microvm: names of flake references.", "", pairs()},
		{"substituters", "Microvm: binary caches, URLs to public keys.", "", pairs()},
		{"caches", "The earlier name of substituters.", "", pairs().old()},
		{"virtualisation", "Microvm: NixOS virtualisation options.", "", options()},
	}
})

var conditionKeys = sync.OnceValue(func() []key {
	return []key{
		{"event", "The events: push, pull_request, manual, schedule.", "add event: push", oneOrMore(oneOf(events()), wordsLimit)},
		{"branch", `Push: the pushed branch. Pull request: the target branch. Patterns; "!" in front excludes.`, "", patterns()},
		{"tag", `Push of a tag. Patterns; "!" in front excludes.`, "", patterns()},
		{"types", "What happened to the pull request; without it opened, reopened and synchronize.", "", oneOrMore(oneOf(actions()), wordsLimit)},
		{"paths", `One changed file at least must match. Patterns; "!" in front excludes.`, "", patterns()},
		{"schedule", "Time tables, on the default branch.", "", listOf(scheduleKeys, 0, func(Limits) int { return tablesLimit })},
	}
})

var scheduleKeys = sync.OnceValue(func() []key {
	return []key{
		{"cron", "Minute, hour, day of month, month, day of week; H is a number that differs by repository.", `add cron: "H 2 * * *"`, timeTable()},
		{"timezone", "An IANA name such as Europe/Paris; without it, UTC.", "", zone()},
	}
})

var cloneKeys = sync.OnceValue(func() []key {
	return []key{
		{"skip", "True fetches nothing.", "", boolean(false)},
		{"depth", "How many commits; 0 means 1.", "", whole(0, depthLimit)},
		{"submodules", "Whether submodules are fetched.", "", boolean(true)},
		{"tags", "Whether tags are fetched.", "", boolean(true)},
		{"lfs", "Whether large files are fetched.", "", boolean(false)},
	}
})

var cacheKeys = sync.OnceValue(func() []key {
	return []key{
		{"key", "The name of the cache, different for each.", "add key: go", word(cacheKeyLimit)},
		{"paths", "What is kept; ~/ is the home folder.", "add paths: [~/.cache]", inside(true)},
		{"hash", "Files of the repository whose content is part of the key.", "", inside(false)},
		{"fallback", "True takes the newest cache with this key when none has the hash.", "", boolean(false)},
		{"compression-level", "1 to 19; without it, the server's.", "", whole(1, levelLimit)},
		{"when", "When it is saved.", "", oneOf(cacheWhens())},
	}
})

var stepKeys = sync.OnceValue(func() []key {
	return []key{
		{"name", "The name that people read; without it, the first line of the command.", "", word(nameLimit)},
		{"command", "What the shell runs.", `add command: "make test"`, commandText()},
		{"environment", "Variables of this step, names to texts.", "", variables()},
		{"timeout", "How long the step may take, such as 5m.", "", duration()},
		{"if", "An expression; without it, success().", "", expression()},
		{"secrets", "The secrets that this step gets; without it, those of the workflow.", "", secretNames()},
		{"continue_on_error", "True goes on when the step does not pass.", "", boolean(false)},
		{"shell", "The program that the command is handed to; without it bash, else sh.", "", word(nameLimit).with(rules{"pattern": shellName.String()})},
		{"working_directory", "Where it starts, below the folder of the clone.", "", word(textLimit).with(rules{"not": rules{"type": "string", "pattern": `(^|/)\.\.(/|$)|^[/~]`}})},
	}
})

var concurrencyKeys = sync.OnceValue(func() []key {
	return []key{
		{"group", "The name of the group; ${{ }} is filled in.", "add group: deploy", template()},
		{"cancel", "True ends the run that is on when a newer one comes.", "", boolean(false)},
	}
})

var approvalKeys = sync.OnceValue(func() []key {
	return []key{
		{"by", "Who may approve; without it, collaborator.", "", oneOf(approvers())},
		{"others_only", "True wants somebody other than who caused the run.", "", boolean(false)},
		{"expires", "How long it waits, such as 24h or 3d.", "", span()},
	}
})

var inputKeys = sync.OnceValue(func() []key {
	return []key{
		{"type", "Without it, string.", "", oneOf(inputTypes())},
		{"description", "For the form that people fill in.", "", word(aboutLimit)},
		{"options", "The values of a choice.", "", oneOrMore(entry(), optionsLimit)},
		{"default", "What it is when nobody sends it.", "", always(rules{"type": scalars()})},
		{"required", "True wants it sent with every manual run.", "", boolean(false)},
	}
})

var retryKeys = sync.OnceValue(func() []key {
	return []key{
		{"max", "How many attempts may follow the first.", "add max: 1", whole(0, retryMost)},
		{"on", "The ends that count; without it, infrastructure.", "", oneOrMore(oneOf(retryEnds()), len(retryEnds())).filled()},
	}
})

var serviceKeys = sync.OnceValue(func() []key {
	return []key{
		{"image", "An OCI image.", "add image: docker.io/library/postgres:17", word(imageLimit).with(rules{"pattern": imageReference.String(), "not": rules{"const": HostImage}})},
		{"environment", "Its variables, names to texts.", "", variables()},
		{"ports", "What it listens on.", "", ports()},
		{"ready", "A command that passes once it can be used.", "", word(textLimit)},
	}
})

var artifactKeys = sync.OnceValue(func() []key {
	return []key{
		{"name", "Different for each.", "add name: binaries", word(nameLimit).with(rules{"pattern": fileName.String()})},
		{"paths", "Patterns of files in the repository.", "add paths: [dist/**]", files()},
		{"when", "When it is kept; without it, on-success.", "", oneOf(artifactWhens())},
		{"retention", "How long it is kept, such as 30d.", "", span()},
	}
})

var reportKeys = sync.OnceValue(func() []key {
	return []key{
		{"type", "What it is.", "add type: junit", oneOf(reportTypes())},
		{"format", "Of coverage; without it the content tells.", "", oneOf(coverageFormats())},
		{"paths", "Patterns of files in the repository.", "add paths: [\"report/*.xml\"]", files()},
	}
})
