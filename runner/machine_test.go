package runner

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/workflow"
)

// TestMachineAsksForWhatTheFileSays: packages by registry, and the keys that only some machines can give, by name.
func TestMachineAsksForWhatTheFileSays(t *testing.T) {
	t.Parallel()
	require.Nil(t, packages(workflow.Dependencies{}))
	require.Equal(t, map[string][]string{"": {"go"}}, packages(workflow.Dependencies{Packages: []string{"go"}}))
	require.Equal(t, map[string][]string{"nixpkgs": {"go", "nodejs"}, "other": {"x"}}, packages(workflow.Dependencies{Registries: []workflow.Registry{
		{Name: "nixpkgs", Packages: []string{"go"}}, {Name: "other", Packages: []string{"x"}}, {Name: "nixpkgs", Packages: []string{"nodejs"}},
	}}))
	require.Empty(t, needs(nil))
	require.Empty(t, needs(&workflow.MicrovmSpec{}))
	require.Equal(t, []string{"registry", "substituters", "services", "virtualisation"}, needs(&workflow.MicrovmSpec{
		Registry: []workflow.Env{{}}, Substituters: []workflow.Env{{}}, Services: json.RawMessage(`{}`), Virtualisation: json.RawMessage(`{}`),
	}))
}
