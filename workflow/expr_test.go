package workflow

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/pipeline"
)

// wide is a scope in which every kind of name exists.
func wide() *scope {
	return &scope{
		before: true, needs: []string{"build", "a.b"}, axes: []string{"go", "os"},
		inputs: []Declared{
			{Key: "level", Type: InputChoice, Options: []string{"low", "high"}},
			{Key: "dry", Type: InputBoolean}, {Key: "n", Type: InputNumber}, {Key: "s", Type: InputString},
		},
	}
}

func someFacts() Facts {
	return Facts{
		Trigger: pipeline.Trigger{Kind: pipeline.Push, Ref: "refs/heads/main", Commit: "abc", Actor: "did:plc:a"},
		Inputs:  wide().inputs, Given: []Env{{"level", "low"}, {"dry", "true"}, {"n", "2.5"}, {"s", "it's"}},
		Cell:   []Env{{"go", "1.10"}},
		Needs:  map[string]Need{"build": {Result: Success, Outputs: map[string]string{"v": "1"}}, "a.b": {Result: Skipped}},
		Before: Success,
	}
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]bool{
		"true": true, "false": false, "!false": true, "!!true": true, "true && false": false, "true || false": true,
		"false || false && true || true": true, "(true || true) && false": false, "!(true && true) || true": true,
		"'a' == 'a'": true, "'a' == 'A'": false, `"a" != 'b'`: true, "'it''s' == inputs.s": true, `"q\"\\" == 'q"\'`: true,
		"1 < 2": true, "2 <= 2.0": true, "-1 > -2": true, "1 >= 1.5": false, "inputs.n > 2 && inputs.n < 3": true,
		"trigger.event == 'push'": true, "trigger.branch == 'main'": true, "trigger.tag == ''": true, "ref == 'refs/heads/main'": true,
		"trigger.ref == ref": true, "trigger.sha == 'abc'": true, "trigger.actor == 'did:plc:a'": true, "trigger.pull.fork": false,
		"trigger.pull.target_branch == ''": true, "matrix.go == '1.10'": true, "matrix.os == ''": true, "inputs.dry": true,
		"inputs.level in ['low', 'high']": true, "inputs.n in [1, 2.5]": true, "'x' in ['a']": false,
		"needs.build.result == 'success'": true, "needs.build.outputs.v == '1'": true, "needs.build.outputs.none == ''": true,
		`needs["a.b"].result == "skipped"`: true,
		"contains('main', 'ai')":           true, "startsWith(trigger.branch, 'ma')": true, "endsWith(trigger.branch, 'in')": true,
		"matches(trigger.branch, '{main,next}')": true, "matches('a/b', '*')": false, "matches('a/b', '**')": true,
		"success()": true, "failure()": false, "always()": true, "cancelled()": false, "!cancelled() && always()": true, "success ( )": true,
		"\ttrue\n&&\n true ": true,
	} {
		require.Nil(t, checkExpr(src, wide()), src)
		got, err := Eval(Expr(src), someFacts())
		require.NoError(t, err, src)
		require.Equal(t, want, got, src)
	}
}

func TestExpressionsThatAreWrong(t *testing.T) {
	t.Parallel()
	for src, c := range map[string]struct {
		at   int
		says string
		with string // what takes its place, or nothing
	}{
		"":                                {0, "is empty", ""},
		"   ":                             {0, "is empty", ""},
		"trigger.brnch == 'main'":         {0, `did you mean "branch"`, "trigger.branch"},
		"tigger.branch == 'main'":         {0, `did you mean "trigger"`, "trigger.branch"},
		"true && succes()":                {8, `did you mean "success"`, "success"},
		"success":                         {0, "is a function", "success()"},
		"trigger.branch":                  {0, "gives text", ""},
		"matrix.go == 1.10":               {13, "values of the file are texts", ""},
		"trigger.event == 'pull'":         {17, "is never", ""},
		"trigger.event == 'psh'":          {17, `did you mean "push"`, "'push'"},
		"inputs.level == 'hihg'":          {16, `did you mean "high"`, "'high'"},
		"inputs.lvel == 'high'":           {0, `did you mean "level"`, "inputs.level"},
		"needs.biuld.result == 'success'": {0, `did you mean "build"`, "needs.build.result"},
		"needs.build.resul == 'success'":  {0, `did you mean "result"`, "needs.build.result"},
		"needs.build.result == 'passed'":  {22, "is never", ""},
		"needs.build.outputs == ''":       {0, "no value of its own", ""},
		"needs == ''":                     {0, "no value of its own", ""},
		"matrix.arch == ''":               {0, "there is no", ""},
		"env.CI == 'true'":                {0, "env cannot be asked", ""},
		"secrets.X != ''":                 {0, "secrets cannot be asked", ""},
		"github.ref_name == 'main'":       {0, `here it is called "trigger.branch"`, "trigger.branch"},
		"steps.x.outcome == 'success'":    {0, "there is no", ""},
		"a = 'b'":                         {2, "a single =", "=="},
		"true & false":                    {5, "a single &", "&&"},
		"true and false":                  {5, "expected && or ||", "&&"},
		"true or false":                   {5, "expected && or ||", "||"},
		"'1.10' < '1.9'":                  {0, "compares numbers", ""},
		"1 < 2 < 3":                       {6, "cannot follow one another", ""},
		"!'a'":                            {1, "takes true or false", ""},
		"'a' && true":                     {0, "takes true or false", ""},
		"'a":                              {0, "not closed", ""},
		"(true":                           {5, "expected )", ""},
		"true)":                           {4, "expected && or ||", ""},
		"trigger.branch in 'main'":        {18, "expected a list", ""},
		"trigger.branch in [ref]":         {19, "texts, numbers", ""},
		"trigger.branch in ['a', 1]":      {24, "cannot be compared", ""},
		"contains('a')":                   {0, "takes two texts", ""},
		"contains(1, 'a')":                {9, "takes texts", ""},
		"matches(ref, ref)":               {13, "must be written out", ""},
		"matches(ref, '[')":               {13, "cannot be read", ""},
		"success('x')":                    {0, "takes nothing", ""},
		"${{ always() }}":                 {0, "takes no ${{ }}", ""},
		"1234567890123456 == 1":           {0, "is not a number", "'1234567890123456'"},
		"1.2.3 == matrix.go":              {0, "is not a number", "'1.2.3'"},
		"trigger.branch.x == ''":          {0, "has no parts", ""},
		"ref == §":                        {7, "has no meaning", ""},
		strings.Repeat("(", 40) + "true":  {33, "more than", ""},
		strings.Repeat("!", 40) + "true":  {33, "more than", ""},
		strings.Repeat("a", 1001):         {0, "1001 bytes", ""},
		"1" + strings.Repeat("||1", 250):  {0, "more than 200", ""},
	} {
		f := checkExpr(src, wide())
		if len(src) > 700 && f != nil { // where exactly does not matter
			require.Contains(t, f.message, c.says[:4])
			continue
		}
		require.NotNil(t, f, src)
		require.Contains(t, f.message, c.says, src)
		require.Equal(t, c.at, f.at, src)
		require.NotEmpty(t, f.fix, src)
		if c.with != "" {
			require.NotNil(t, f.replace, src)
			require.Equal(t, c.with, *f.replace, src)
		}
		require.LessOrEqual(t, f.end, len(src))
		require.LessOrEqual(t, f.at, f.end)
	}
	nothing := &scope{}
	require.NotNil(t, checkExpr("success()", nothing), "before anything has run nothing can be asked about it")
	require.NotNil(t, checkExpr("needs.a.result == ''", nothing))
	require.Contains(t, checkExpr("matrix.a == ''", nothing).message, `has no "matrix"`)
}

// A condition that does not say otherwise holds only after success.
func TestSuccessGoesWithoutSaying(t *testing.T) {
	t.Parallel()
	for src, want := range map[string][4]bool{ // after success, failure, cancelled, skipped
		"":                            {true, false, false, false},
		"true":                        {true, false, false, false},
		"always()":                    {true, true, true, true},
		"failure()":                   {false, true, false, false},
		"cancelled()":                 {false, false, true, false},
		"!cancelled()":                {true, true, false, true},
		"success() || failure()":      {true, true, false, false},
		"trigger.branch == 'main'":    {true, false, false, false},
		"always() && matrix.go == ''": {false, false, false, false},
	} {
		for i, o := range []Outcome{Success, Failure, Cancelled, Skipped} {
			f := someFacts()
			f.Before = o
			got, err := Eval(Expr(src), f)
			require.NoError(t, err)
			require.Equal(t, want[i], got, "%s after %s", src, o)
		}
	}
}

// A fork may call its branch what it likes; no name that decides is that name.
func TestForksCannotPoseAsBranches(t *testing.T) {
	t.Parallel()
	f := Facts{Trigger: pipeline.Trigger{
		Kind: pipeline.PullRequest, Repo: "did:plc:us", Ref: "refs/heads/main",
		Pull: &pipeline.Pull{SourceRepo: "did:plc:them", SourceBranch: "main", TargetBranch: "main", Ticket: "at://did:plc:them/org.tangled.x/3kabc"},
	}}
	for src, want := range map[string]bool{
		"trigger.branch == 'main'": false, "trigger.branch == ''": true, "ref == 'refs/heads/main'": false, "ref == 'refs/pull/3kabc'": true,
		"trigger.pull.fork": true, "trigger.pull.source_branch == 'main'": true, "trigger.pull.action == 'opened'": true,
	} {
		got, err := Eval(Expr(src), f)
		require.NoError(t, err)
		require.Equal(t, want, got, src)
	}
	group, err := Template("deploy-${{ ref }}").Expand(f)
	require.NoError(t, err)
	require.Equal(t, "deploy-refs/pull/3kabc", group)
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"plain": "plain", "a-${{ ref }}": "a-refs/heads/main", "${{matrix.go}}/${{ inputs.n }}/${{ inputs.dry }}": "1.10/2.5/true",
		"$ {x} }}": "$ {x} }}",
	} {
		require.Nil(t, checkTemplate(src, wide()), src)
		got, err := Template(src).Expand(someFacts())
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, src := range []string{"${{ ref", "${{ }}", "${{ rf }}", "${{ a b }}"} {
		require.NotNil(t, checkTemplate(src, wide()), src)
	}
	f := someFacts()
	for _, v := range []string{"", "a\nb", strings.Repeat("x", 300)} {
		f.Given[3].Value = v
		_, err := Template("${{ inputs.s }}").Expand(f)
		require.Error(t, err, "%q", v)
	}
}

// Eval is total: whatever the text and the facts, it ends without a panic, and what was checked has a value.
func TestEvalIsTotal(t *testing.T) {
	t.Parallel()
	words := []string{
		"true", "false", "1", "-2.5", "'a'", `"b"`, "trigger.branch", "trigger.pull.fork", "inputs.n", "inputs.dry", "matrix.go", "ref",
		"needs.build.result", "needs.build.outputs.x", "==", "!=", "<", ">=", "&&", "||", "!", "(", ")", "in", "[", "]", ",", "success()",
		"failure()", "contains(", "matches(", ".", "x", " ",
	}
	rapid.Check(t, func(t *rapid.T) {
		src := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 12).Draw(t, "words"), " ")
		_, err := Eval(Expr(src), Facts{})
		if checkExpr(src, wide()) == nil {
			_, err = Eval(Expr(src), someFacts())
			require.NoError(t, err, src)
		}
		_, _ = Template("${{" + src + "}}").Expand(Facts{})
		_ = err
	})
}

func TestNumbersAndTextsKeepApart(t *testing.T) {
	t.Parallel()
	long := someFacts()
	long.Given[3].Value = strings.Repeat("x", matchBytes+1)
	_, err := Eval("matches(inputs.s, '*x*x*')", long)
	require.ErrorContains(t, err, "too long")
	for _, src := range []Expr{"1 == '1'", "trigger.branch", "nothing.here == ''", "needs.x == ''", "!1", "matrix == ''"} {
		_, err := Eval(src, someFacts())
		require.Error(t, err, src)
	}
}
