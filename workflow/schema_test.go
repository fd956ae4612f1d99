package workflow

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// compiled is the schema as a validator that is not ours reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(Limits{})
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7) // the schema itself says that it is of 2020-12
	require.NoError(t, c.AddResource("workflow.json", doc))
	s, err := c.Compile("workflow.json")
	require.NoError(t, err)
	require.Equal(t, 2020, s.DraftVersion)
	return s
}

// takes tells whether s takes src, which must be YAML.
func takes(t require.TestingT, s *jsonschema.Schema, src []byte) error {
	var values any
	require.NoError(t, yaml.Unmarshal(src, &values), "%s", src)
	text, err := json.Marshal(values)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	return s.Validate(v)
}

// TestSchemaAgreesWithTheParser reads testdata/schema: files that both take, that both refuse, and that the parser
// alone refuses, for what no schema can say.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	read := 0
	for folder, want := range map[string]struct{ parser, schema bool }{
		"good": {true, true}, "bad": {false, false}, "beyond": {false, true},
	} {
		files, err := filepath.Glob("testdata/schema/" + folder + "/*.yml")
		require.NoError(t, err)
		for _, file := range files {
			read++
			src, err := os.ReadFile(file)
			require.NoError(t, err)
			spec, ds := Parse(file, src, Limits{})
			if (spec != nil) != want.parser {
				t.Errorf("%s: the parser: %v", file, ds)
			}
			if err := takes(t, s, src); (err == nil) != want.schema {
				t.Errorf("%s: the schema: %v", file, err)
			}
		}
	}
	require.Greater(t, read, 200)
	for _, src := range [][]byte{[]byte(full), typical(t)} {
		require.NoError(t, takes(t, s, src))
	}
}

// TestGoodFilesUseEveryKey makes sure that no key escapes the comparison.
func TestGoodFilesUseEveryKey(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/schema/good/*.yml")
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		src, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(src)
	}
	for _, k := range allKeys() {
		require.Contains(t, all.String(), k.name+":")
		require.NotEmpty(t, k.about)
	}
}

// TestSchemaIsNeverStricter draws documents that are nearly right: whatever the parser takes, the schema takes.
func TestSchemaIsNeverStricter(t *testing.T) {
	t.Parallel()
	s := compiled(t)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		src, err := json.Marshal(drawWorkflow(t))
		require.NoError(t, err)
		spec, _ := Parse("x.yml", src, Limits{})
		if spec == nil {
			return
		}
		taken++
		require.NoError(t, takes(t, s, src), "%s", src)
	})
	require.Positive(t, taken)
}

// drawWorkflow is a workflow with some keys, whose values are sometimes of another key's kind.
func drawWorkflow(t *rapid.T) map[string]any {
	out := map[string]any{"steps": []any{map[string]any{"command": "make"}}}
	drawKeys(t, out, workflowKeys(), rapid.IntRange(0, 3).Draw(t, "keys"))
	return out
}

func drawKeys(t *rapid.T, out map[string]any, keys []key, n int) {
	for range n {
		k := rapid.SampledFrom(keys).Draw(t, "key")
		out[k.name] = drawValue(t, k.name, 3)
	}
}

func drawValue(t *rapid.T, name string, depth int) any {
	objects := map[string][]key{
		"when": conditionKeys(), "cache": cacheKeys(), "steps": stepKeys(), "schedule": scheduleKeys(), "clone": cloneKeys(),
		"artifacts": artifactKeys(), "reports": reportKeys(), "concurrency": concurrencyKeys(), "approval": approvalKeys(), "retry": retryKeys(),
		"inputs": inputKeys(), "services": serviceKeys(),
	}
	if keys, ok := objects[name]; ok && depth > 0 && rapid.IntRange(0, 9).Draw(t, "right") > 0 {
		o := map[string]any{}
		for _, k := range keys {
			if k.need != "" || rapid.IntRange(0, 3).Draw(t, "has") == 0 {
				o[k.name] = drawValue(t, k.name, depth-1)
			}
		}
		switch name {
		case "clone", "concurrency", "approval", "retry":
			return o
		case "inputs", "services":
			return map[string]any{"a": o}
		}
		return []any{o}
	}
	words := append([]any{
		"a", "", " ", "a b", "a\nb", "\u00a0", "é", 1, 0, -1, 2.5, 1e3, "5", "+7", true, false, "true", "5m", "1h0.5s", "µs", "1µs", "90m", "host",
		"H 2 * * *", "@daily", " 0 1 * * * ", "UTC", "Local", "did:x", "!", "!a", "**", "../a", "~/a", "/a", "a/..", "v*", "null", "nixpkgs#go",
		"on-success", "always", "A_B", "none", "internet", "example.org:443", "*.example.org", "always()", "true && false", "ref == 'a'", "junit", "coverage", "go",
		"choice", "number", "boolean", "owner", "failure", "30d", "production", "a-${{ ref }}", "${{ x }}", "bash", "src/a", "docker.io/library/a:1", "test.yml", 80,
	}, anys(engines())...)
	words = append(append(words, anys(events())...), anys(actions())...)
	word := rapid.SampledFrom(words)
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return []any{}
	case 1:
		return []any{word.Draw(t, "one"), word.Draw(t, "two")}
	case 2:
		return map[string]any{"A": word.Draw(t, "value")}
	}
	return word.Draw(t, "word")
}

func anys(words []string) []any {
	var out []any
	for _, w := range words {
		out = append(out, w)
	}
	return out
}
