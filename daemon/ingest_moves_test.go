package daemon_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"spindle/devnet"
	"spindle/devnet/world"
)

// TestSameMoveLaterRunsAgain tells of a branch that moves forth, back and forth again, each notice twice: each
// move is a pipeline, each repeated notice is none.
func TestSameMoveLaterRunsAgain(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	a := push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	b := push(t, r, devnet.Change{Files: map[string]string{"x": "y"}})
	await(t, w, r, b.SHA, world.Ended)
	tell := func(from, to string) (ids []string) {
		for range 2 {
			var out struct {
				Pipelines []string `json:"pipelines"`
			}
			token := world.NewClient(w.URL, world.Hostname, &devnet.Account{DID: r.DID, Repo: r.Repo})
			require.NoError(t, token.Call(t.Context(), "org.tangled.event.notifyEvent", map[string]any{
				"repo": r.DID.String(), "event": map[string]any{
					"$type": "org.tangled.event.push", "repo": r.DID.String(), "ref": "refs/heads/main",
					"oldSha": strings.TrimSpace(from), "newSha": strings.TrimSpace(to),
				},
			}, &out))
			require.Len(t, out.Pipelines, 1)
			ids = append(ids, out.Pipelines[0])
		}
		require.Equal(t, ids[0], ids[1], "a repeated notice is the same pipeline")
		return ids[:1]
	}
	tell(b.SHA, a.SHA)
	tell(a.SHA, b.SHA)
	tell(b.SHA, a.SHA)
	count := func(sha string) int {
		ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), strings.TrimSpace(sha))
		require.NoError(t, err)
		return len(ps)
	}
	require.Equal(t, 3, count(a.SHA))
	require.Equal(t, 2, count(b.SHA))
}

// TestB049DeletedBranchStartsNothing deletes a branch and makes it again at the same commit.
func TestB049DeletedBranchStartsNothing(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := hello(t, w)
	push(t, r, devnet.Change{Files: map[string]string{".tangled/workflows/a.yml": file("echo x")}})
	p := push(t, r, devnet.Change{Branch: "side", Files: map[string]string{"x": "y"}})
	first := await(t, w, r, p.SHA, world.Ended)
	require.NoError(t, r.DeleteBranch(t.Context(), nil, "side"))
	ps, err := w.Client(nil).Pipelines(t.Context(), r.DID.String(), "")
	require.NoError(t, err)
	require.Len(t, ps, 2, "the deletion started nothing")
	_, err = w.Net.Knot().Git(t.Context(), r.Git.Dir, "push", "-q", r.CloneURL(), strings.TrimSpace(p.SHA)+":refs/heads/side")
	require.NoError(t, err)
	again := await(t, w, r, p.SHA, world.Ended)
	require.NotEqual(t, first.Id, again.Id)
}
