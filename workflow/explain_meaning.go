package workflow

import "spindle/pipeline"

// explainMeaning holds the codes of files that are YAML but no workflow.
func explainMeaning() []Explanation {
	return []Explanation{
		{
			codeKey, "an unknown key",
			"A key that nobody reads has no effect, and a misspelt one would be a setting that silently does not hold.",
			text("steps:\n  - comand: make test\n"), text(command),
		},
		{
			codeExpr, "an expression that cannot be read, or whose types do not fit",
			"Expressions are checked before anything runs: every name must be known, and no type turns into another one, so a text is " +
				"compared with a text in quotes. docs/workflow.md has the whole language.",
			text("steps:\n  - command: make publish\n    if: trigger.brnch == 'main'\n"),
			text("steps:\n  - command: make publish\n    if: trigger.branch == 'main'\n"),
		},
		{
			codeTemplate, "`${{ }}` where nothing is filled in",
			"Filling text into a command makes it a part of the script: whoever may choose the name of a branch, or an input, could run " +
				"what they like. Steps get all of it as variables, which the shell never runs.",
			text("inputs: {level: {}}\nsteps:\n  - command: make LEVEL=${{ inputs.level }}\n"),
			text("inputs: {level: {}}\nsteps:\n  - command: make LEVEL=\"$TANGLED_INPUT_LEVEL\"\n"),
		},
		{
			codeNeeds, "needs that name no workflow, or go in a circle",
			"A need is the file name of another workflow of the same commit, without its ending. What waits for itself would never start.",
			text("needs: [biuld]\n" + command), text("steps:\n  - command: make build\n  - command: make test\n"),
		},
		{
			codeInput, "an input of a manual run that the workflow does not take",
			"A workflow that declares its inputs says what they may be, so that a slip in a form is told before anything runs.",
			Example{Source: "inputs: {level: {type: choice, options: [low, high]}}\n" + command, Inputs: []pipeline.Input{{Key: "level", Value: "hihg"}}},
			Example{Source: "inputs: {level: {type: choice, options: [low, high]}}\n" + command, Inputs: []pipeline.Input{{Key: "level", Value: "high"}}},
		},
		{
			codeOffer, "a key that this server does not carry out, and that cannot be left out",
			"The key decides what may run, when, or with which secrets. To leave it out silently would run something other than what " +
				"was written, such as a deployment without its approval.",
			Example{Source: "approval: {by: owner}\n" + command, Bare: true}, Example{Source: command, Bare: true},
		},
		{
			codeRequired, "a key or an entry is missing",
			"Without it there is nothing to run, to compare or to keep.",
			text("steps:\n  - name: unit tests\n"), text("steps:\n  - name: unit tests\n    command: make test\n"),
		},
		{
			codeType, "a list where text is wanted, and the like",
			"The value has another shape than the key takes: text, a list (each entry after a dash), or keys with values.",
			text("steps: make test\n"), text(command),
		},
		{
			codeValue, "a value outside what is allowed",
			"The shape is right but the value is not: a time without a unit, a number out of range, a path that leaves its folder.",
			text("timeout: 20\n" + command), text("timeout: 20m\n" + command),
		},
		{
			codeEnv, "a variable that no environment can hold",
			"A variable is a name and one text. Names are letters, digits and _, not starting with a digit; a value cannot be a " +
				"list, keys or nothing.",
			text("environment: {NODE-ENV: test}\n" + command), text("environment: {NODE_ENV: test}\n" + command),
		},
		{
			codeEvent, "an unknown event or type",
			"The events are push, pull_request, manual and schedule. A push of a tag is a push with tag: instead of branch:.",
			text("when:\n  - event: pr\n    branch: main\n" + command),
			text("when:\n  - event: pull_request\n    branch: main\n" + command),
		},
		{
			codeGlob, "a pattern that cannot be read",
			"A [ or { is not closed, or nothing follows the !. Such a pattern would match nothing, and the workflow never start.",
			text("when:\n  - event: push\n    branch: \"release-[0-9\"\n" + command),
			text("when:\n  - event: push\n    branch: \"release-[0-9]\"\n" + command),
		},
		{
			codeCron, "a time table that cannot be read or is never due",
			"A time table has five columns: minute, hour, day of month, month, day of week (Sunday is 0). H stands for a number " +
				"that differs from repository to repository.",
			text("when:\n  - event: schedule\n    schedule: [{cron: \"0 25 * * *\"}]\n" + command),
			text("when:\n  - event: schedule\n    schedule: [{cron: \"0 1 * * *\"}]\n" + command),
		},
		{
			codeZone, "an unknown time zone",
			"Time zones are IANA names, such as UTC or Europe/Paris. Short names such as CST mean different times in different places.",
			text("when:\n  - event: schedule\n    schedule: [{cron: \"0 1 * * *\", timezone: Paris}]\n" + command),
			text("when:\n  - event: schedule\n    schedule: [{cron: \"0 1 * * *\", timezone: Europe/Paris}]\n" + command),
		},
		{
			codeEngine, "an engine that is unknown, or not offered by the server",
			"The engine decides where the steps run and how well they are kept apart, so no other one is taken in its place. " +
				"Without the key it is sandbox.",
			text("engine: sandbx\n" + command), text("engine: sandbox\n" + command),
		},
		{
			codeDialect, "the language of another system",
			"The file looks like one of GitHub Actions. The languages are alike but not the same; each job becomes a file of its own.",
			text("on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps: [{run: make test}]\n"),
			text("when:\n  - event: push\n    branch: [\"**\"]\n" + command),
		},
		{
			codeFile, "a file name that cannot name a workflow",
			"The file name is the workflow's name: it stands in addresses, in tables and in the badges of a repository.",
			Example{File: "unit:tests.yml", Source: command}, Example{File: "unit-tests.yml", Source: command},
		},
		{
			codeOnly, "a run asked for a workflow that is not there",
			"A manual run may name the workflows to start. A name is the file name, with or without its ending, at the commit that runs.",
			Example{Source: command, Only: "tset"}, Example{Source: command, Only: "test"},
		},
	}
}

// explainWarnings holds the codes of what is taken, but does less than it seems to.
func explainWarnings() []Explanation {
	return []Explanation{
		{
			warnHere, "a key that this server does not carry out",
			"The workflow runs, but without what the key asks for. The log of the run says so too.",
			Example{Source: "artifacts: [{name: binaries, paths: [dist/**]}]\n" + command, Bare: true}, Example{Source: command, Bare: true},
		},
		{
			warnNever, "a condition that never matches",
			"The condition is allowed, but no event will ever match it as written: a push needs a branch or a tag, a pull request " +
				"the branch that it wants to go to.",
			text("when:\n  - event: push\n" + command), text("when:\n  - event: push\n    branch: main\n" + command),
		},
		{
			warnUnused, "a key without effect",
			"The key is allowed, but something else in the file makes it do nothing.",
			text("clone: {skip: true, depth: 5}\n" + command), text("clone: {skip: true}\n" + command),
		},
		{
			warnReserved, "a variable that the server sets",
			"CI and the names that start with TANGLED_ or SPINDLE_ tell a step about its run. The server's value wins.",
			text("environment: {TANGLED_SHA: abc}\n" + command), text("environment: {RELEASE_SHA: abc}\n" + command),
		},
		{
			warnOld, "an earlier name of a key",
			"The key has a new name. The earlier one still works, with the same meaning.",
			text("engine: microvm\ncaches: {\"https://cache.example.org\": \"key\"}\n" + command),
			text("engine: microvm\nsubstituters: {\"https://cache.example.org\": \"key\"}\n" + command),
		},
		{
			warnFile, "a file in the folder that is no workflow",
			"Workflow files lie in .tangled/workflows/ itself and end in .yml or .yaml. Anything else there is left alone.",
			Example{File: "test.yml.txt", Source: command}, Example{File: "test.yml", Source: command},
		},
	}
}
