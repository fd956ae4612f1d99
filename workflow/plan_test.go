package workflow

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
)

const run = "steps: [{command: make}]\n"

func compiledFiles(t pipeline.Trigger, files ...string) Plan {
	in := Input{Trigger: t}
	for i := 0; i < len(files); i += 2 {
		in.Files = append(in.Files, file(files[i]+".yml", files[i+1]))
	}
	return Compile(in)
}

func byName(p Plan) map[string]Planned {
	out := map[string]Planned{}
	for _, w := range p.Workflows {
		out[w.Name] = w
	}
	return out
}

func TestNeedsBecomeWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	p := byName(compiledFiles(push("refs/heads/main"),
		"deploy", "needs: [test, build]\n"+run, "test", "needs: build\nmatrix: {go: [a, b]}\n"+run, "build", run))
	require.Len(t, p, 4)
	require.Equal(t, []string{"build", "test[go=a]", "test[go=b]"}, p["deploy"].Spec.WaitsFor)
	require.Equal(t, []string{"test", "build"}, p["deploy"].Spec.Needs)
	require.Empty(t, p["deploy"].Spec.Settled)
	require.Equal(t, []Env{{"go", "b"}}, p["test[go=b]"].Spec.Cell)
	require.Equal(t, []Env{{"SPINDLE_MATRIX_GO", "b"}}, p["test[go=b]"].Spec.CellEnvironment())
	require.Equal(t, "test[go=b]", p["test[go=b]"].Spec.Name)
	require.Equal(t, "test", p["test[go=b]"].Workflow)

	s := p["deploy"].Spec
	need := func(r Outcome, kv ...string) Need {
		n := Need{Result: r, Outputs: map[string]string{}}
		for i := 0; i < len(kv); i += 2 {
			n.Outputs[kv[i]] = kv[i+1]
		}
		return n
	}
	ended := map[string]Need{"build": need(Success, "v", "1"), "test[go=a]": need(Success, "x", "a"), "test[go=b]": need(Success, "x", "b")}
	require.Equal(t, Decision{Run: true}, s.Decide(pipeline.Trigger{}, ended))
	require.Equal(t, []Env{{"SPINDLE_NEEDS_BUILD_V", "1"}, {"SPINDLE_NEEDS_TEST_X", "b"}}, s.NeedsEnvironment(ended))
	ended["test[go=a]"] = need(Failure)
	require.Equal(t, Decision{Why: `it needs "test", which did not pass`}, s.Decide(pipeline.Trigger{}, ended))
	delete(ended, "build")
	require.False(t, s.Decide(pipeline.Trigger{}, ended).Run)
}

func TestNeedsThatDoNotStartAreSkipped(t *testing.T) {
	t.Parallel()
	only := "when: [{event: push, tag: \"v*\"}]\n" + run
	p := byName(compiledFiles(push("refs/heads/main"), "release", only, "announce", "needs: release\n"+run,
		"mail", "needs: announce\n"+run, "always", "needs: release\nif: always()\n"+run, "broken", "stepz: 1\n", "after", "needs: broken\n"+run))
	require.Equal(t, `it needs "release", which was skipped: wants tag v*, got branch main`, p["announce"].Skip)
	require.Contains(t, p["mail"].Skip, `it needs "announce", which was skipped: it needs "release"`)
	require.Empty(t, p["always"].Skip)
	require.Equal(t, []Settled{{Name: "release", Need: Need{Result: Skipped}, Why: "wants tag v*, got branch main"}}, p["always"].Spec.Settled)
	require.Equal(t, `it needs "broken", which did not pass: it is invalid`, p["after"].Skip)
	require.Nil(t, p["broken"].Spec)
}

func TestNeedsThatCannotBeMetAreInvalid(t *testing.T) {
	t.Parallel()
	p := byName(compiledFiles(push("refs/heads/main"),
		"a", "needs: b\n"+run, "b", "needs: [c]\n"+run, "c", "needs: [d, a]\n"+run, "d", run, "e", "needs: a\n"+run, "f", "needs: [dd]\n"+run))
	for name, circle := range map[string]string{"a": "a needs b needs c needs a", "b": "b needs c needs a needs b", "c": "c needs a needs b needs c"} {
		require.Nil(t, p[name].Spec)
		require.Contains(t, p[name].Diagnostics[0].Message, circle)
		require.Equal(t, 1, p[name].Diagnostics[0].Line)
		require.Equal(t, codeNeeds, p[name].Diagnostics[0].Code)
	}
	require.Equal(t, `it needs "a", which did not pass: it is invalid`, p["e"].Skip)
	require.Contains(t, p["f"].Diagnostics[0].Message, `did you mean "d"`)
	require.NotNil(t, p["d"].Spec)
	in := Input{Files: []File{file("f.yml", "needs: [elsewhere]\n"+run)}, Partial: true, All: true}
	require.NotNil(t, Compile(in).Workflows[0].Spec, "other files may be there")
}

func TestOnlyBringsWhatItNeeds(t *testing.T) {
	t.Parallel()
	files := []File{file("a.yml", "needs: b\n"+run), file("b.yml", "needs: c\nwhen: [{event: push, branch: x}]\n"+run), file("c.yml", run), file("d.yml", run)}
	in := Input{Files: files, Trigger: pipeline.Trigger{Kind: pipeline.Manual, Only: []string{"a"}}}
	p := byName(Compile(in))
	require.Len(t, p, 3)
	require.Equal(t, []string{"b"}, p["a"].Spec.WaitsFor)
	in.Earlier = map[string]Need{"b": {Result: Success, Outputs: map[string]string{"v": "2"}}}
	p = byName(Compile(in))
	require.Len(t, p, 1)
	require.Equal(t, []Settled{{Name: "b", Need: in.Earlier["b"]}}, p["a"].Spec.Settled)
	require.Empty(t, p["a"].Skip)
}

func TestConditionsThatAreKnownSkipAtOnce(t *testing.T) {
	t.Parallel()
	p := byName(compiledFiles(push("refs/heads/next"), "a", "if: trigger.branch == 'main'\n"+run,
		"b", "matrix: {os: [linux, plan9]}\nif: matrix.os == 'linux'\n"+run, "c", "needs: b\n"+run))
	require.Equal(t, "its if does not hold: trigger.branch == 'main'", p["a"].Skip)
	require.Empty(t, p["b[os=linux]"].Skip)
	require.NotEmpty(t, p["b[os=plan9]"].Skip)
	require.Len(t, p["c"].Spec.WaitsFor, 2)
}

func TestStepsDecide(t *testing.T) {
	t.Parallel()
	s := parse(t, "steps:\n  - command: a\n  - {command: b, if: failure()}\n  - {command: c, if: \"trigger.branch == 'x'\"}\n")
	require.True(t, s.DecideStep(0, pipeline.Trigger{}, nil, Success).Run)
	require.Equal(t, "an earlier step did not pass", s.DecideStep(0, pipeline.Trigger{}, nil, Failure).Why)
	require.Equal(t, "the run was asked to end", s.DecideStep(0, pipeline.Trigger{}, nil, Cancelled).Why)
	require.True(t, s.DecideStep(1, pipeline.Trigger{}, nil, Failure).Run)
	require.False(t, s.DecideStep(1, pipeline.Trigger{}, nil, Success).Run)
	require.True(t, s.DecideStep(2, push("refs/heads/x"), nil, Success).Run)
	require.Contains(t, s.DecideStep(2, push("refs/heads/y"), nil, Success).Why, "does not hold")
	s.Steps[0].If = "no such thing"
	require.True(t, s.DecideStep(0, pipeline.Trigger{}, nil, Success).Fault)
}

func TestMatrixCells(t *testing.T) {
	t.Parallel()
	s := parse(t, `matrix:
  go: ["1.25", 1.26]
  os: [debian, alpine]
  exclude: [{go: "1.25", os: alpine}]
  include:
    - {go: 1.26, race: "yes"}
    - {go: tip, os: debian}
    - {go: tip, os: debian}
    - {extra: e}
`+run)
	var got []string
	for _, c := range s.Matrix.Cells() {
		got = append(got, cellName("t", c, nil))
	}
	require.Equal(t, []string{
		"t[go=1.25,os=debian,extra=e]", "t[go=1.26,os=debian,race=yes,extra=e]", "t[go=1.26,os=alpine,race=yes,extra=e]", "t[go=tip,os=debian]",
	}, got)
	for src, code := range map[string]string{
		"matrix: {}\n":                                                   codeRequired,
		"matrix: {a: []}\n":                                              codeRequired,
		"matrix: [a]\n":                                                  codeType,
		"matrix: {a: [x, x]}\n":                                          codeTwice,
		"matrix: {a: [x], exclude: [{a: x}]}\n":                          codeRequired,
		"matrix: {a: [x], exclude: [{b: x}]}\n":                          codeValue,
		"matrix: {a-b: [x], a_b: [y]}\n":                                 codeTwice,
		"matrix: {\"a b\": [x]}\n":                                       codeValue,
		"matrix: {a: [x], include: [y]}\n":                               codeType,
		"matrix: {a: [" + numbers(257) + "]}\n":                          codeLimit,
		"matrix: {a: [" + numbers(17) + "], b: [" + numbers(16) + "]}\n": codeLimit,
	} {
		_, ds := Parse("x.yml", []byte(src+run), Limits{})
		require.Contains(t, codes(ds), code, src)
	}
	require.Len(t, parse(t, "matrix: {a: ["+numbers(16)+"], b: ["+numbers(16)+"]}\n"+run).Matrix.Cells(), 256)
	_, ds := Parse("x.yml", []byte("matrix: {a: [x], exclude: [{a: y}]}\n"+run), Limits{})
	require.Equal(t, []string{warnUnused}, codes(ds))
}

func numbers(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return strings.Join(out, ",")
}

func TestCellNamesAreUniqueAndPlain(t *testing.T) {
	t.Parallel()
	p := compiledFiles(push("refs/heads/main"), "t", "matrix: {a: [x/y, \"x y\", \"x]y\", "+strings.Repeat("z", 200)+"]}\n"+run)
	require.Len(t, byName(p), 4)
	for name := range byName(p) {
		require.Regexp(t, `^t\[[A-Za-z0-9._:+=,~-]+\]$`, name)
		require.LessOrEqual(t, len(name), cellNameBytes)
	}
}

func TestInputsOfManualRuns(t *testing.T) {
	t.Parallel()
	const form = "inputs:\n  level: {type: choice, options: [low, high], default: low}\n  dry: {type: boolean}\n  n: {type: number, required: true}\n  s: {}\n" + run
	manual := func(kv ...string) pipeline.Trigger {
		t := pipeline.Trigger{Kind: pipeline.Manual}
		for i := 0; i < len(kv); i += 2 {
			t.Inputs = append(t.Inputs, pipeline.Input{Key: kv[i], Value: kv[i+1]})
		}
		return t
	}
	p := compiledFiles(manual("n", "3", "s", ""), "a", form)
	require.Empty(t, p.InputErrors)
	require.Equal(t, []Env{{"level", "low"}, {"n", "3"}, {"s", ""}}, p.Workflows[0].Spec.Given)

	p = compiledFiles(manual("level", "hihg", "dry", "yes", "n", "1e3", "nn", "x", "n", "4"), "a", form)
	var got []string
	for _, e := range p.InputErrors {
		got = append(got, e.Workflow+"."+e.Input+" "+string(e.Reason))
		require.NotEmpty(t, e.Error())
	}
	require.Equal(t, []string{"a.level invalid", "a.dry invalid", "a.n invalid", ".nn unknown", ".n twice"}, got)
	require.Len(t, p.Diagnostics, 5)
	require.Contains(t, p.InputErrors[0].Message, `did you mean "high"`)
	require.Equal(t, InputMissing, compiledFiles(manual(), "a", form).InputErrors[0].Reason)
	require.Empty(t, compiledFiles(manual("n", "1", "other", "x"), "a", form, "b", "inputs: {other: {}}\n"+run).InputErrors)
	require.Empty(t, compiledFiles(manual("any", "x"), "b", run).InputErrors, "a file that declares nothing takes anything")
	require.Equal(t, []Env{{"any", "x"}}, compiledFiles(manual("any", "x"), "b", run).Workflows[0].Spec.Given)
	require.Empty(t, compiledFiles(push("refs/heads/main"), "a", form).InputErrors, "nobody could have sent it")
	require.Empty(t, Compile(Input{Files: []File{file("a.yml", form)}, All: true, Trigger: manual()}).InputErrors)
	require.Equal(t, "TANGLED_INPUT_DRY_RUN", InputVariable("dry-run"))
}

func TestWhatIsNotCarriedOutIsTold(t *testing.T) {
	t.Parallel()
	src := "image: alpine\nnetwork: none\nservices: {db: {image: postgres}}\ncache: [{key: a, paths: b}]\nartifacts: [{name: a, paths: b}]\n" +
		"reports: [{type: junit, paths: a}]\ndependencies: [go]\nretry: {max: 1}\n" + run
	none := Capabilities{}
	in := Input{Files: []File{file("a.yml", src)}, Trigger: push("refs/heads/main"), Capabilities: &none}
	w := Compile(in).Workflows[0]
	require.NotNil(t, w.Spec)
	var got []string
	for _, n := range w.Spec.NotCarried {
		got = append(got, fmt.Sprintf("%s %d:%d", n.Feature, n.Line, n.Column))
	}
	slices.Sort(got)
	require.Equal(t, []string{
		"artifacts 5:1", "cache 4:1", "dependencies 7:1", "image 1:1", "network 2:1", "reports 6:1", "retry 8:1", "services 3:1",
	}, got)
	for _, d := range w.Diagnostics {
		require.Equal(t, warnHere, d.Code)
		require.Equal(t, Warning, d.Severity)
	}
	all := Capabilities{Engines: map[string][]Feature{Sandbox: {
		FeatureImage, FeatureNetwork, FeatureServices, FeatureCache, FeatureArtifacts, FeatureReports, FeatureDependencies, FeatureRetry,
	}}}
	in.Capabilities = &all
	require.Empty(t, Compile(in).Workflows[0].Diagnostics)
	for key, line := range map[string]string{
		"approval": "approval: {by: owner}", "if": "if: always()", "matrix": "matrix: {a: [b]}", "concurrency": "concurrency: a",
		"inputs": "inputs: {a: {}}", "deploys_to": "deploys_to: a", "secrets": "secrets: []",
	} {
		in := Input{Files: []File{file("a.yml", line+"\n"+run)}, Trigger: push("refs/heads/main"), Capabilities: &none}
		w := Compile(in).Workflows[0]
		require.Nil(t, w.Spec, key)
		require.Equal(t, codeOffer, w.Diagnostics[0].Code)
		require.Contains(t, w.Diagnostics[0].Message, `"`+key+`"`)
		in.Capabilities = &Capabilities{Server: []Feature{Feature(key)}}
		require.NotNil(t, Compile(in).Workflows[0].Spec, key)
	}
}

func TestSecretsAreChosenByStep(t *testing.T) {
	t.Parallel()
	s := parse(t, "secrets: []\nsteps:\n  - command: a\n  - {command: b, secrets: [TOKEN]}\n")
	require.False(t, s.StepSecrets(0).Has("TOKEN"))
	require.True(t, s.StepSecrets(1).Has("TOKEN"))
	require.False(t, s.StepSecrets(1).Has("OTHER"))
	s = parse(t, run)
	require.True(t, s.StepSecrets(0).Has("ANY"))
	var old Spec // one that an earlier version stored
	require.NoError(t, json.Unmarshal([]byte(`{"steps":[{"name":"a","command":"b"}]}`), &old))
	require.True(t, old.StepSecrets(0).Has("ANY"))
}

// TestFingerprint holds the digest of a plan to a value, so that a change of what is compiled does not go unseen.
func TestFingerprint(t *testing.T) {
	t.Parallel()
	one := func() string {
		f, err := compiledFiles(push("refs/heads/main"), "all", full, "m", "needs: all\nmatrix: {a: [b, c]}\n"+run, "bad", "stepz: 1\n").Fingerprint()
		require.NoError(t, err)
		return f
	}
	first := one()
	require.Regexp(t, "^[0-9a-f]{64}$", first)
	for range 20 {
		require.Equal(t, first, one())
	}
	spec, err := parse(t, w0).Fingerprint()
	require.NoError(t, err)
	require.Equal(t, goldenSpec, spec, "what is compiled has changed; if that was wanted, write the new value")
}

const goldenSpec = "9833a8efdcd31de16b71a1bd2276916de6ffbc62f71ae3f5bd8bb54993725472"

// TestOrderOfFilesNeverShows compiles the same files in any order, over and over, to the same plan.
func TestOrderOfFilesNeverShows(t *testing.T) {
	t.Parallel()
	sources := []string{
		run, "needs: [w0, w3]\n" + run, "matrix: {b: [x, y], a: [z]}\nneeds: w1\n" + run, "inputs: {b: {}, a: {default: c}}\n" + run, "needs: [w5]\n" + run,
		"needs: w4\n" + run, "environment: {Z: a, A: b}\nservices: {b: {image: c}, a: {image: d}}\n" + run, "steps: [{comand: a, nmae: b}]\n",
	}
	var want string
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "order")
		in := Input{Trigger: push("refs/heads/main")}
		for _, i := range order {
			in.Files = append(in.Files, file(fmt.Sprintf("w%d.yml", i), sources[i]))
		}
		got, err := Compile(in).Fingerprint()
		require.NoError(t, err)
		if want == "" {
			want = got
		}
		require.Equal(t, want, got)
	})
}

func TestNextTimes(t *testing.T) {
	t.Parallel()
	s := parse(t, "when: [{event: schedule, schedule: [{cron: \"0 2 * * *\", timezone: Europe/Paris}, {cron: \"0 1 * * 1\"}]}]\n"+run)
	after := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC) // a Friday before the clocks change
	var got []string
	for _, at := range s.NextTimes("did:plc:x", after, 4) {
		got = append(got, at.UTC().Format("Jan 2 15:04"))
	}
	require.Equal(t, []string{"Mar 28 01:00", "Mar 30 00:00", "Mar 30 01:00", "Mar 31 00:00"}, got, "two o'clock does not exist on the 29th")
	require.Empty(t, parse(t, run).NextTimes("x", after, 3))
}

func TestTooManyWorkflowsAreRefused(t *testing.T) {
	t.Parallel()
	big := "matrix: {a: [" + numbers(16) + "], b: [" + numbers(16) + "]}\n" + run
	p := compiledFiles(push("refs/heads/main"), "a", big, "b", big, "c", big, "d", big)
	require.Len(t, p.Workflows, 3*256+1)
	require.Equal(t, codeLimit, p.Workflows[3*256].Diagnostics[0].Code)
}

// B-033, B-034, and files that differ in case only: nothing vanishes without a word.
func TestB033FilesThatAreNotTakenAreTold(t *testing.T) {
	t.Parallel()
	in := Input{Trigger: push("refs/heads/main"), Files: []File{
		{Path: Dir + "a.yml", NotTaken: "it is a symbolic link"}, {Path: Dir + "e.yml", NotTaken: "it is a submodule"},
		{Path: Dir + "huge.yml", NotTaken: "it is larger than 262144 bytes"},
		file("ok.yml", w0), file("Test.yml", w0), file("test.yml", w0), file("x.yml", w0), file("x.yaml", w0),
	}}
	p := Compile(in)
	require.Equal(t, []string{warnFile, warnFile, warnFile}, codes(p.Diagnostics))
	got := byName(p)
	require.NotNil(t, got["ok"].Spec)
	for _, name := range []string{"Test", "test", "x"} {
		require.Nil(t, got[name].Spec)
		require.Equal(t, codeTwice, got[name].Diagnostics[0].Code)
	}
	in.Files = append(in.Files, file("after.yml", "needs: [a]\n"+run))
	require.Nil(t, byName(Compile(in))["after"].Spec)
}
