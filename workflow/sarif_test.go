package workflow

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSARIF reads the log as a stranger would, and holds it to what SARIF 2.1.0 requires of the parts that are used.
func TestSARIF(t *testing.T) {
	t.Parallel()
	_, ds := Parse(".tangled/workflows/a b.yml", []byte("stepz: 1\nclone: {skip: true, depth: 2}\nsteps: [{command: a}]\n"), Limits{})
	require.Len(t, ds, 2)
	ds = append(ds, Diagnostic{Severity: Error, Code: "E-ELSE", Message: "m"}, Diagnostic{File: "/x/y.yml", Severity: Error, Code: codeLimit, Message: "m"})
	out, err := SARIF(ds, "1.2.3")
	require.NoError(t, err)
	var log map[string]any
	require.NoError(t, json.Unmarshal(out, &log))
	require.Equal(t, "2.1.0", log["version"])
	require.Contains(t, log["$schema"], "sarif-schema-2.1.0.json")
	runs := log["runs"].([]any)
	require.Len(t, runs, 1)
	run := runs[0].(map[string]any)
	driver := run["tool"].(map[string]any)["driver"].(map[string]any)
	require.Equal(t, "spindle", driver["name"])
	rules := driver["rules"].([]any)
	require.Len(t, rules, len(Explanations()))
	results := run["results"].([]any)
	require.Len(t, results, len(ds))
	for i, r := range results {
		r := r.(map[string]any)
		require.Equal(t, ds[i].Code, r["ruleId"])
		require.Contains(t, []any{"error", "warning"}, r["level"])
		require.NotEmpty(t, r["message"].(map[string]any)["text"])
		at := int(r["ruleIndex"].(float64))
		if at >= 0 {
			require.Equal(t, ds[i].Code, rules[at].(map[string]any)["id"])
		} else {
			require.Equal(t, "E-ELSE", r["ruleId"])
		}
		if ds[i].File == "" {
			require.NotContains(t, r, "locations")
			continue
		}
		where := r["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)
		uri := where["artifactLocation"].(map[string]any)["uri"]
		if ds[i].Line == 0 {
			require.Equal(t, "file:///x/y.yml", uri)
			require.NotContains(t, where, "region")
			continue
		}
		require.Equal(t, ".tangled/workflows/a%20b.yml", uri)
		require.EqualValues(t, ds[i].Line, where["region"].(map[string]any)["startLine"])
		require.EqualValues(t, ds[i].Column, where["region"].(map[string]any)["startColumn"])
	}
	out, err = SARIF(nil, "")
	require.NoError(t, err)
	require.Contains(t, string(out), `"results": []`)
}
