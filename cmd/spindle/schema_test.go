package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"spindle/devnet/world"
	"spindle/engines"
	"spindle/engines/dummy"
	"spindle/internal/clock"
	"spindle/workflow"
)

func TestSchemaIsPrinted(t *testing.T) {
	t.Parallel()
	want, err := workflow.Schema(workflow.Limits{})
	require.NoError(t, err)
	for _, args := range [][]string{{"schema"}, {"schema", "workflow"}} {
		code, out := exit(t, nil, args...)
		require.Equal(t, exitOK, code)
		require.Equal(t, string(want), out)
	}
	require.True(t, json.Valid(want))
	code, out := exit(t, nil, "schema", "config")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "workflow")
}

// TestServedSchemaIsThePrintedOne fetches the schema from a running server, as an editor does, and uses it.
func TestServedSchemaIsThePrintedOne(t *testing.T) {
	t.Parallel()
	w, err := world.Start(t.Context(), world.Options{Dir: t.TempDir(), Engines: func(string) ([]engines.Engine, error) {
		return []engines.Engine{dummy.New(dummy.Config{Clock: clock.Real{}})}, nil
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+"/schema/workflow.json", http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "application/schema+json", res.Header.Get("Content-Type"))
	served, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	code, printed := exit(t, nil, "schema")
	require.Equal(t, exitOK, code)
	require.Equal(t, printed, string(served))

	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(served))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("workflow.json", doc))
	schema, err := c.Compile("workflow.json")
	require.NoError(t, err)
	for text, good := range map[string]bool{
		`{"when":[{"event":"push","branch":"main"}],"steps":[{"command":"make"}]}`: true,
		`{"steps":[{"comand":"make"}]}`:                                            false,
		`{"when":"push","steps":[{"command":"make"}]}`:                             false,
	} {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		require.Equal(t, good, schema.Validate(v) == nil, text)
	}
}
