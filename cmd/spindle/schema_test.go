package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

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
