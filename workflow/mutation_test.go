package workflow

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutation is one mistake in testdata/mutations/base.yml: from becomes to. Following the fix makes mend of it;
// empty mend means from. says is the part of the fix that tells so. The mistake is told on the first line that
// differs from the base, or below lines further down.
type mutation struct {
	name, code     string
	from, to, mend string
	says           string
	below          int
}

func mutations() []mutation {
	return []mutation{
		// Slips of the keyboard in keys.
		{"key-name", codeKey, "\nname: tests", "\nnmae: tests", "", "rename it to name", 0},
		{"key-when", codeKey, "\nwhen:", "\nwehn:", "", "rename it to when", 0},
		{"key-event", codeKey, "- event: manual", "- evnt: manual", "", "rename it to event", 0},
		{"key-branch", codeKey, "    branch:", "    brnach:", "", "rename it to branch", 0},
		{"key-branches", codeKey, "    branch:", "    branches:", "", "rename it to branch", 0},
		{"key-paths", codeKey, "    paths: [\"src", "    path: [\"src", "", "rename it to paths", 0},
		{"key-cron", codeKey, "- cron: ", "- corn: ", "", "rename it to cron", 0},
		{"key-timezone", codeKey, "timezone:", "time_zone:", "", "rename it to timezone", 0},
		{"key-runs-on", codeKey, "runs_on:", "runs-on:", "", "rename it to runs_on", 0},
		{"key-engine", codeKey, "engine:", "engin:", "", "rename it to engine", 0},
		{"key-clone", codeKey, "\nclone:", "\ncheckout:", "", "rename it to clone", 0},
		{"key-submodules", codeKey, "submodules:", "submodule:", "", "rename it to submodules", 0},
		{"key-env", codeKey, "\nenvironment:", "\nenv:", "", "rename it to environment", 0},
		{"key-cache-paths", codeKey, "    paths: [node", "    pathes: [node", "", "rename it to paths", 0},
		{"key-compression", codeKey, "compression-level:", "compression_level:", "", "rename it to compression-level", 0},
		{"key-steps", codeKey, "\nsteps:", "\nstep:", "", "rename it to steps", 0},
		{"key-run", codeKey, "command: go vet", "run: go vet", "", "rename it to command", 0},
		{"key-script", codeKey, "command: du", "script: du", "", "rename it to command", 0},
		{"key-timeout", codeKey, "    timeout: 5m", "    timeot: 5m", "", "rename it to timeout", 0},
		{"key-case", codeKey, "image: host", "Image: host", "", "rename it to image", 0},
		{"key-alien", codeKey, "timeout: 20m", "privileged: true\ntimeout: 20m", "", "remove it", 0},
		// Values.
		{"event-pr", codeEvent, "event: [push, pull_request]", "event: [push, pr]", "", "write pull_request", 0},
		{"event-slip", codeEvent, "- event: manual", "- event: manaul", "", "write manual", 0},
		{"event-dispatch", codeEvent, "- event: manual", "- event: workflow_dispatch", "", "write manual", 0},
		{"glob-bracket", codeGlob, `"release-*"`, `"release-[0-9"`, `"release-[0-9]"`, "close every [", 0},
		{"glob-lone", codeGlob, `"!**/*.md"`, `"!"`, "", "write a pattern after the !", 0},
		{"cron-columns", codeCron, `"H 2 * * *"`, `"H 2 * *"`, "", "minute hour day month weekday", 0},
		{"cron-hour", codeCron, `"H 2 * * *"`, `"H 25 * * *"`, `"0 1 * * *"`, `"0 1 * * *"`, 0},
		{"cron-never", codeCron, `"H 2 * * *"`, `"0 0 30 2 *"`, `"0 0 28 2 *"`, "a day that the month has", 0},
		{"zone", codeZone, "Europe/Paris", "Europe/Pari", "", "Europe/Paris", 0},
		{"label", codeValue, "runs_on: [linux]", "runs_on: [\"linux box\"]", "runs_on: [linux-box]", "letters, digits and", 0},
		{"engine", codeEngine, "engine: sandbox", "engine: sandbx", "", "engine: sandbox", 0},
		{"depth", codeValue, "depth: 50", "depth: all", "depth: 1000000", "from 0 to 1000000", 0},
		{"bool-quotes", codeType, "submodules: true", `submodules: "true"`, "", "without quotes", 0},
		{"bool-yes", codeType, "tags: false", "tags: no", "", "write true or false", 0},
		{"audience", codeValue, "sts.amazonaws.com", "did:web:example.org", "", "sts.amazonaws.com", 0},
		{"level", codeValue, "compression-level: 3", "compression-level: 22", "compression-level: 19", "from 1 to 19", 0},
		{"cache-when", codeValue, "when: on-success", "when: on-sucess", "", "write on-success", 0},
		{"cache-up", codeValue, "[node_modules]", "[../node_modules]", "", "without ..", 0},
		{"cache-hash", codeValue, "[go.sum]", "[/go.sum]", "", "inside the repository", 0},
		{"cache-key", codeTwice, "key: node", "key: go", "", "give it another key", 0},
		{"timeout-unit", codeValue, "timeout: 20m", "timeout: 20", "timeout: 20m", "20m for minutes", 0},
		{"timeout-words", codeValue, "timeout: 20m", "timeout: 20 minutes", "", "20m", 0},
		{"timeout-long", codeValue, "timeout: 20m", "timeout: 48h", "timeout: 24h", "from 1s to 24h", 0},
		// The keys of order, of forms and of what is kept.
		{"key-needs", codeKey, "runs_on: [linux]", "runs_on: [linux]\ndepends_on: [build]", "runs_on: [linux]\nneeds: [build]", "rename it to needs", 0},
		{"needs-ending", codeValue, "runs_on: [linux]", "runs_on: [linux]\nneeds: [build.yml]", "runs_on: [linux]\nneeds: [build]", "write build", 0},
		{"if-name", codeExpr, "    command: du -sh dist", "    command: du -sh dist\n    if: trigger.brnch == 'main'", "    command: du -sh dist\n    if: trigger.branch == 'main'", "write trigger.branch", 0},
		{"if-equals", codeExpr, "    command: du -sh dist", "    command: du -sh dist\n    if: trigger.branch = 'main'", "    command: du -sh dist\n    if: trigger.branch == 'main'", "write ==", 0},
		{"if-function", codeExpr, "    command: du -sh dist", "    command: du -sh dist\n    if: alwys()", "    command: du -sh dist\n    if: always()", "write always", 0},
		{"if-type", codeExpr, "runs_on: [linux]", "runs_on: [linux]\nif: trigger.branch", "runs_on: [linux]\nif: trigger.branch == 'main'", "compare it", 0},
		{"if-github", codeExpr, "runs_on: [linux]", "runs_on: [linux]\nif: github.ref_name == 'main'", "runs_on: [linux]\nif: trigger.branch == 'main'", "write trigger.branch", 0},
		{"template", codeTemplate, "command: du -sh dist", "command: du -sh ${{ trigger.branch }}", "command: du -sh \"$TANGLED_REF_NAME\"", "$TANGLED_REF_NAME", 0},
		{"deploys-case", codeValue, "runs_on: [linux]", "runs_on: [linux]\ndeploys_to: Production", "runs_on: [linux]\ndeploys_to: production", "lower-case", 0},
		{"approval-by", codeValue, "runs_on: [linux]", "runs_on: [linux]\napproval: {by: ownr}", "runs_on: [linux]\napproval: {by: owner}", "write owner", 0},
		{"retry-on", codeValue, "runs_on: [linux]", "runs_on: [linux]\nretry: {max: 1, on: [failur]}", "runs_on: [linux]\nretry: {max: 1, on: [failure]}", "write failure", 0},
		{"input-type", codeValue, "runs_on: [linux]", "runs_on: [linux]\ninputs: {a: {type: boolen}}", "runs_on: [linux]\ninputs: {a: {type: boolean}}", "write boolean", 0},
		{"artifact-when", codeValue, "runs_on: [linux]", "runs_on: [linux]\nartifacts: [{name: a, paths: b, when: alway}]", "runs_on: [linux]\nartifacts: [{name: a, paths: b, when: always}]", "write always", 0},
		{"report-type", codeValue, "runs_on: [linux]", "runs_on: [linux]\nreports: [{type: lcov, paths: b}]", "runs_on: [linux]\nreports: [{type: coverage, format: lcov, paths: b}]", "type: coverage", 0},
		{"service-name", codeValue, "runs_on: [linux]", "runs_on: [linux]\nservices: {My_DB: {image: postgres}}", "runs_on: [linux]\nservices: {my-db: {image: postgres}}", "lower-case", 0},
		{"network", codeValue, "runs_on: [linux]", "runs_on: [linux]\nnetwork: internt", "runs_on: [linux]\nnetwork: internet", "write internet", 0},
		{"matrix-twice", codeTwice, "runs_on: [linux]", "runs_on: [linux]\nmatrix: {go: [a, a]}", "runs_on: [linux]\nmatrix: {go: [a]}", "remove one", 0},
		{"key-folder", codeKey, "    command: du -sh dist", "    command: du -sh dist\n    working-directory: a", "    command: du -sh dist\n    working_directory: a", "rename it to working_directory", 0},
		// Variables.
		{"variable-name", codeEnv, "  GOFLAGS:", "  GO-FLAGS:", "  GO_FLAGS:", "letters, digits and _", 0},
		{"variable-empty", codeEnv, `  LEVEL: "3"`, "  LEVEL:", `  LEVEL: ""`, `write LEVEL: ""`, 0},
		{"variable-list", codeEnv, `  LEVEL: "3"`, "  LEVEL: [3]", `  LEVEL: "[3]"`, "in quotes if it holds brackets", 0},
		{"variable-reserved", warnReserved, "  LEVEL:", "  TANGLED_LEVEL:", "", "use another name", 0},
		// Shapes.
		{"type-command-number", codeType, "command: du -sh dist", "command: 42", `command: "42"`, `command: "42"`, 0},
		{"type-command-list", codeType, "command: du -sh dist", "command: [du, dist]", "", "write command: |", 0},
		{"required-key", codeRequired, "  - key: node\n    paths:", "  - paths:", "  - key: go2\n    paths:", "add key: go", 0},
		{"type-clone", codeType, "clone:\n  depth: 50\n  submodules: true\n  tags: false\n", "clone: false\n", "clone: {skip: true}\n", "write keys with values", 0},
		{"type-name", codeType, "\nname: tests", "\nname:", "", "write a value after the colon", 0},
		{"required-command", codeRequired, "\n    command: du -sh dist", "", "\n    command: \"make test\"", `add command: "make test"`, -1},
		{"required-event", codeRequired, "- event: manual", "- branch: main", "- event: push\n    branch: main", "add event: push", 0},
		// Text.
		{"tab", codeTab, "\n    command: go vet", "\n\tcommand: go vet", "\n    command: go vet", "replace the tab", 0},
		{"indent-more", codeYAML, "\n    timeout: 5m", "\n     timeout: 5m", "", "remove 1 space", 0},
		{"indent-less", codeYAML, "\n    timeout: 5m", "\n   timeout: 5m", "", "add 1 space", 0},
		{"quote-open", codeYAML, `LEVEL: "3"`, `LEVEL: "3`, "", "close the quotes", 0},
		{"bracket-open", codeYAML, "runs_on: [linux]", "runs_on: [linux", "", "close every [", 0},
		{"star", codeAnchor, `tag: ["v*"]`, `tag: [*]`, `tag: ["*"]`, "in quotes", 0},
		{"exclude", codeTag, `"!**/*.md"]`, `!docs]`, `"!docs"]`, `"!docs"`, 0},
		{"anchor", codeAnchor, `  LEVEL: "3"`, "  LEVEL: *level", "", "in quotes, or write an anchor &level", 0},
		{"merge", codeMerge, `  LEVEL: "3"`, "  <<: 3", "  <<: {LEVEL: \"3\"}", "with a mapping", 0},
		{"twice", codeTwice, "timeout: 20m", "image: host\ntimeout: 20m", "", "remove one of them", 0},
		{"document", codeDocuments, "timeout: 20m", "---\ntimeout: 20m", "", "into a file of its own", 1},
		{"colon", codeYAML, "command: go vet ./...", "command: echo vet: done", `command: "echo vet: done"`, "quotes", 0},
		{"control", codeEncoding, "command: du", "command: \x07du", "", "remove the character", 0},
		{"latin1", codeEncoding, "# Tests", "# Pr\xfcft", "", "save the file as UTF-8", 0},
		// What is taken, and does less than it seems to.
		{"never-push", warnNever, "\n    tag: [\"v*\"]", "", "\n    tag: [\"**\"]", `tag: ["**"]`, -1},
		{"never-refs", warnNever, "[main, ", "[refs/heads/main, ", "", "write main", 0},
		{"never-folder", warnNever, `["src/**",`, `["src/",`, "", "src/**", 0},
		{"never-slash", warnNever, `["src/**",`, `["/src/**",`, "", "write src/**", 0},
		{"unused-branch", warnUnused, "- event: manual", "- event: manual\n    branch: main", "", "remove it", 0},
		{"unused-depth", warnUnused, "depth: 50", "depth: 0", "depth: 1000000", "depth: 1000000", 0},
		{"unused-stars", warnUnused, `"!**/*.md"`, `"!**.md"`, "", "**/*.md", 0},
	}
}

// TestMutations makes one mistake at a time. Each gives one diagnostic, of the right code and on the right line,
// whose fix works: the file that follows it has nothing left to say. What people see is in the golden file.
func TestMutations(t *testing.T) {
	t.Parallel()
	base := typical(t)
	_, ds := Parse("base.yml", base, Limits{})
	require.Empty(t, ds)
	var all strings.Builder
	seen := map[string]bool{}
	mended := 0
	for _, m := range mutations() {
		require.False(t, seen[m.name], m.name)
		seen[m.name] = true
		require.Equal(t, 1, bytes.Count(base, []byte(m.from)), m.name)
		at := bytes.Index(base, []byte(m.from))
		with := func(text string) []byte {
			return []byte(string(base[:at]) + text + string(base[at+len(m.from):]))
		}
		wrong, mend := with(m.to), m.mend
		if mend == "" {
			mend = m.from
		}
		_, ds := Parse(m.name+".yml", wrong, Limits{})
		for _, d := range ds {
			all.WriteString(d.Render(wrong) + "\n")
		}
		if len(ds) != 1 {
			t.Errorf("%s: %v", m.name, ds)
			continue
		}
		d := ds[0]
		if want := firstDifference(base, wrong) + m.below; d.Code != m.code || d.Line != want || !strings.Contains(d.Fix, m.says) {
			t.Errorf("%s: want %s on line %d with %q, got %s", m.name, m.code, want, m.says, d)
		}
		if out, n := Apply(wrong, ds); n > 0 {
			mended++
			if _, left := Parse(m.name+".yml", out, Limits{}); len(left) > 0 {
				t.Errorf("%s: the edit leaves %v", m.name, left)
			}
		}
		if _, left := Parse(m.name+".yml", with(mend), Limits{}); len(left) > 0 {
			t.Errorf("%s: following %q leaves %v", m.name, d.Fix, left)
		}
	}
	require.GreaterOrEqual(t, len(seen), 90)
	require.GreaterOrEqual(t, mended, 40)
	const golden = "testdata/mutations/diagnostics.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(all.String()), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), all.String())
}

// firstDifference is the first line of b that is not as in a.
func firstDifference(a, b []byte) int {
	x, y := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range x {
		if i >= len(y) || !bytes.Equal(x[i], y[i]) {
			return i + 1
		}
	}
	return len(x) + 1
}
