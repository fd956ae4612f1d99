package trigger

import (
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/pipeline"
)

// TestB035APullRequestCountsFromTheMergeBase has the target move on in other files, and a history that never met it.
func TestB035APullRequestCountsFromTheMergeBase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	bob, err := b.net.CreateAccount(t.Context(), "bob.test")
	require.NoError(t, err)
	r := b.repo("hello")
	tr := b.commit(r, devnet.Change{Files: map[string]string{
		dir + "a.yml": file("    paths: [\"src/**\"]\n"),
		dir + "b.yml": file("    paths: [\"doc/**\"]\n"),
	}})
	fork, err := b.net.Fork(t.Context(), bob, r, devnet.RepoOptions{})
	require.NoError(t, err)
	head, err := fork.Push(t.Context(), devnet.Change{As: bob, Branch: "fix", Files: map[string]string{"src/x": "y"}})
	require.NoError(t, err)
	moved := b.commit(r, devnet.Change{Files: map[string]string{"doc/x": "y"}})
	b.run()
	tr.Kind, tr.Ref, tr.Old, tr.Commit = pipeline.PullRequest, "", "", head.SHA
	for name, base := range map[string]string{"none": "", "a lie": moved.Commit} {
		tr.Pull = &pipeline.Pull{SourceRepo: fork.DID.String(), Base: base, Head: head.SHA, TargetBranch: "main", Action: "opened"}
		require.Equal(t, []string{"a"}, names(b.planned(b.accept(tr))), name)
	}
	tr.Pull = &pipeline.Pull{SourceRepo: fork.DID.String(), Head: head.SHA, TargetBranch: "none", Action: "opened"}
	p := b.planned(b.accept(tr))
	require.Equal(t, []string{"a", "b"}, names(p))
	require.Contains(t, p.Note, "which files changed is not known")
}
