package workflow

import "sync"

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
)

var workflowKeys = sync.OnceValue(func() []key {
	return []key{
		{"name", "The name that people read; without it, the file name without its ending.", "", word(nameLimit)},
		{"when", "What starts the workflow; any condition may match, and without one every event does.", "", listOf(conditionKeys, 0, func(l Limits) int { return l.Conditions })},
		{"runs_on", "Labels, all of which the runner must have.", "", labels()},
		{"engine", "What runs the steps; without it, sandbox.", "", oneOf(engines())},
		{"image", "Sandbox: host. Microvm: the name of an image.", "", word(imageLimit)},
		{"dependencies", "Packages. Nixery: lists by registry. Microvm: a list.", "", packages()},
		{"clone", "How the repository is fetched before the first step.", "", object(cloneKeys)},
		{"environment", "Variables of every step, names to texts.", "", variables()},
		{"audience", "Asks for an ID token with this aud; not a DID.", "", audience()},
		{"cache", "What is kept between runs.", "", listOf(cacheKeys, 0, func(Limits) int { return cachesLimit })},
		{"timeout", "How long an attempt may take, such as 20m; without it, the server's.", "", duration()},
		{
			"steps", "Commands, run one after another until one fails.", `add steps: [{name: test, command: "make test"}]`,
			listOf(stepKeys, 1, func(l Limits) int { return l.Steps }),
		},
		{"registry", "Microvm: names of flake references.", "", pairs()},
		{"substituters", "Microvm: binary caches, URLs to public keys.", "", pairs()},
		{"caches", "The earlier name of substituters.", "", pairs().old()},
		{"services", "Microvm: NixOS services.", "", options()},
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
	}
})
