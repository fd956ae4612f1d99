package plain_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/engines/enginetest"
	"spindle/engines/plain"
)

// The contract, but for the walls that it says it does not have.
func TestContract(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, err := plain.New(plain.Config{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")}})
	require.NoError(t, err)
	enginetest.Run(t, enginetest.Suite{
		Engine: e, Machine: true,
		Without: []string{
			"ShellAndUser", "Dir", "WorkspaceRemoved", "CustomWorkspace", "FilesPersist", "Mounts", "NoNetwork", "NoHostSecrets",
			"NoPower", "NoZombies", "GitWorks", "TemporaryFolder", "ReadOnlyToolsHold",
		},
		Left: func() ([]string, error) {
			var names []string
			list, err := os.ReadDir(dir)
			for _, d := range list {
				names = append(names, d.Name())
			}
			return names, err
		},
	})
}
