package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"spindle/backfill"
	"spindle/devnet/fault"
	"spindle/devnet/pds"
	"spindle/devnet/plc"
	"spindle/identity"
	"spindle/internal/clock"
	"spindle/internal/netguard"
	"spindle/internal/tid"
	"spindle/knot"
	"spindle/store"
)

// converging is an account whose records are written, told of, read as a whole, and lost, in any order.
type converging struct {
	store  *store.Store
	prover *identity.Prover
	dir    *identity.Directory
	plc    *plc.Directory
	ids    *tid.Source

	in    *Ingest
	reads *backfill.Backfill

	did  string
	repo *pds.Repo
	// proofs answer the next live hint of a record.
	proofs map[string]answer
	// snapshot is what a whole reading gets, fetched some time ago.
	snapshot []byte
	// between is run before each transaction of a reading; an error ends it there, as a crash does.
	between func() error
	after   func() error
}

type answer struct {
	p   identity.Proven
	err error
}

type noSink struct{}

func (noSink) Commit(pds.Change)            {}
func (noSink) Identity(string, string)      {}
func (noSink) Account(string, bool, string) {}

const servedRepo = "did:plc:servedservedservedserved"

// quickDir is a folder in memory where there is such.
func quickDir(t *testing.T) string {
	if d, err := os.MkdirTemp("/dev/shm", "converge-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(d) })
		return d
	}
	return t.TempDir()
}

func newConverging(t *testing.T) *converging {
	t.Helper()
	c := &converging{plc: plc.New(), ids: tid.New(clock.Real{})}
	server, err := fault.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	server.Serve(t.Context(), c.plc, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	client := netguard.New(netguard.Config{Dev: true}).HTTPClient(netguard.ClientOptions{})
	t.Cleanup(client.CloseIdleConnections)
	c.dir = identity.NewDirectory(identity.DirectoryConfig{PLCURL: server.URL(), Client: client, Dev: true})
	c.prover = identity.NewProver(identity.ProverConfig{Directory: c.dir, Client: client})
	owner := "did:plc:ownerownerownerownerowne"
	c.store, err = store.Open(t.Context(), store.Config{Path: filepath.Join(quickDir(t), "s.db"), Owner: owner})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.store.Close()) })
	_, err = c.store.Accept(t.Context(), store.Effects{Repos: []store.RepoBinding{{
		Repo: servedRepo, Owner: owner, Rkey: "self", Name: "hello", Knot: "knot.test", VerifiedAt: time.Now(),
	}}})
	require.NoError(t, err)
	c.in = New(Config{
		Store: c.store, Prover: c, Hostname: "ci.test", Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler),
		Count: func(string) {}, Health: func(string, bool, string) {},
	})
	c.reads = backfill.New(backfill.Config{
		Store: c.store, Reader: c, Knots: noKnots{}, Intake: c, Clock: clock.Real{}, Log: slog.New(slog.DiscardHandler),
		Collections: AccountCollections(), Binding: Binding(), Batch: 2,
	})
	return c
}

// begin makes a new account, which is followed.
func (c *converging) begin(t require.TestingT) {
	key, err := atcrypto.GeneratePrivateKeyK256()
	require.NoError(t, err)
	pub, err := key.PublicKey()
	require.NoError(t, err)
	did, err := c.plc.Create(plc.Entry{Handle: "h" + c.ids.Next() + ".test", Key: pub, Services: []plc.Service{{ID: plc.PDSService, Type: plc.PDSType, Endpoint: "http://pds.test"}}})
	require.NoError(t, err)
	c.repo, err = pds.New(pds.Config{Sink: noSink{}, Clock: clock.Real{}}).Create(did, "", key, "")
	require.NoError(t, err)
	c.did, c.proofs, c.snapshot = did.String(), map[string]answer{}, nil
	c.between, c.after = func() error { return nil }, func() error { return nil }
	require.NoError(t, c.store.WantBackfill(context.Background(), c.did, store.BackfillAccount, "start"))
}

// now proves one record as it is now.
func (c *converging) now(ctx context.Context, t require.TestingT, rkey string) answer {
	r := c.whole(ctx, t, c.export(t))
	p, err := r.Record(ticketNSID, rkey)
	require.NoError(t, r.Close())
	return answer{p, err}
}

func (c *converging) export(t require.TestingT) []byte {
	b, err := c.repo.Export()
	require.NoError(t, err)
	return b
}

func (c *converging) whole(ctx context.Context, t require.TestingT, car []byte) *identity.Repo {
	id, err := c.dir.Lookup(ctx, c.did)
	require.NoError(t, err)
	r, err := c.prover.ReadRepo(id, bytes.NewReader(car))
	require.NoError(t, err)
	return r
}

// live has a hint of a record worked with the proof that was fetched for it, however long ago.
func (c *converging) live(ctx context.Context, rkey string, a answer) {
	c.proofs[rkey] = a
	c.in.prove(ctx, store.Recheck{DID: c.did, Collection: ticketNSID, Rkey: rkey, Generation: 1})
}

// Record implements Prover.
func (c *converging) Record(ctx context.Context, did, collection, rkey string) (identity.Proven, error) {
	if p, ok, err := identity.Held(ctx, did, collection, rkey); ok {
		return p, err
	}
	a, ok := c.proofs[rkey]
	if !ok {
		return identity.Proven{}, identity.ErrUnreachable
	}
	return a.p, a.err
}

func (c *converging) Account(context.Context, string) (identity.Account, error) {
	return identity.Account{}, identity.ErrUnreachable
}
func (c *converging) List(context.Context, string, string, string, int) ([]identity.Proven, error) {
	return nil, identity.ErrUnreachable
}
func (c *converging) Refresh(context.Context, string) error { return nil }
func (c *converging) RecordFrom(context.Context, []byte, string, string, string) (identity.Proven, error) {
	return identity.Proven{}, identity.ErrProof
}

// Host, LatestRev, Repo and Each implement backfill.Reader.
func (c *converging) Host(context.Context, string, bool) (string, error) {
	return "http://pds.test", nil
}
func (c *converging) LatestRev(context.Context, string, string) (string, error) {
	return "", identity.ErrUnsupported
}
func (c *converging) Repo(ctx context.Context, did, _ string) (*identity.Repo, error) {
	id, err := c.dir.Lookup(ctx, did)
	if err != nil {
		return nil, err
	}
	return c.prover.ReadRepo(id, bytes.NewReader(c.snapshot))
}
func (c *converging) Each(context.Context, string, string, []string, func([]identity.Proven) error) error {
	return identity.ErrUnreachable
}

// Replay and Found implement backfill.Intake.
func (c *converging) Replay(ctx context.Context, s store.BackfillStep, keys []store.RecordKey, since time.Time) error {
	if err := c.between(); err != nil {
		return err
	}
	if err := c.in.Replay(ctx, s, keys, since); err != nil {
		return err
	}
	return c.after()
}
func (c *converging) Found(context.Context, string, string, string, string, string) (bool, error) {
	return false, nil
}

type noKnots struct{}

func (noKnots) Locate(context.Context, string) (knot.Source, error) {
	return knot.Source{}, identity.ErrUnreachable
}
func (noKnots) Tips(context.Context, knot.Source) ([]knot.Ref, error) {
	return nil, identity.ErrUnreachable
}

var errCrash = errors.New("crash")

// read reads the snapshot as a whole, as after a restart.
func (c *converging) read(ctx context.Context, t require.TestingT) {
	require.NoError(t, c.store.WantBackfill(ctx, c.did, store.BackfillAccount, "again"))
	require.NoError(t, c.store.ResumeBackfills(ctx))
	row, ok, err := c.store.Backfill(ctx, c.did)
	require.NoError(t, err)
	require.True(t, ok)
	c.reads.Read(ctx, row)
}

// TestConvergence writes records, tells of them by hints whose proofs were fetched some time ago, in any order, twice or
// never, reads the whole repo as it was some time ago, with hints in the middle of it, and crashes before or after any
// transaction. In the end, after one whole reading, and hints that come even later, the tables are those of the plain
// history. (B-011)
func TestConvergence(t *testing.T) {
	t.Parallel()
	c := newConverging(t)
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		c.begin(rt)
		plain := map[string]string{} // what a plain history ends with: CID by key
		type flight struct {
			rkey string
			a    answer
		}
		var flying []flight
		key := func() string { return fmt.Sprintf("3mzzzzzzz%c22a", 'a'+rapid.IntRange(0, 4).Draw(rt, "key")) }
		write := func() {
			k := key()
			if plain[k] != "" && rapid.Bool().Draw(rt, "delete") {
				_, err := c.repo.Delete(ticketNSID, k)
				require.NoError(rt, err)
				delete(plain, k)
				return
			}
			rec, _, err := c.repo.Put(ticketNSID, k, map[string]any{
				"$type": ticketNSID, "repo": servedRepo, "title": c.ids.Next(), "kind": "pull", "createdAt": "2026-01-01T00:00:00Z",
			}, "")
			require.NoError(rt, err)
			plain[k] = rec.CID.String()
		}
		hint := func() { // by the time its proof is fetched
			k := key()
			flying = append(flying, flight{k, c.now(ctx, rt, k)})
		}
		land := func() {
			if len(flying) == 0 {
				return
			}
			i := rapid.IntRange(0, len(flying)-1).Draw(rt, "which")
			c.live(ctx, flying[i].rkey, flying[i].a)
			if rapid.Bool().Draw(rt, "once") {
				flying = append(flying[:i], flying[i+1:]...)
			}
		}
		some := func() error {
			switch rapid.SampledFrom([]string{"", "", "write", "land", "hint", "crash"}).Draw(rt, "between") {
			case "write":
				write()
			case "land":
				land()
			case "hint":
				hint()
			case "crash":
				return errCrash
			}
			return nil
		}
		for range rapid.IntRange(1, 14).Draw(rt, "length") {
			switch rapid.SampledFrom([]string{"write", "write", "write", "hint", "hint", "land", "land", "fetch", "read"}).Draw(rt, "what") {
			case "write":
				write()
			case "hint":
				hint()
			case "land":
				land()
			case "fetch":
				c.snapshot = c.export(rt)
			case "read":
				if c.snapshot == nil {
					c.snapshot = c.export(rt)
				}
				c.between, c.after = some, some
				c.read(ctx, rt)
			}
		}
		c.between, c.after = func() error { return nil }, func() error { return nil }
		c.snapshot = c.export(rt)
		c.read(ctx, rt)
		for len(flying) > 0 {
			land()
		}
		row, _, err := c.store.Backfill(ctx, c.did)
		require.NoError(rt, err)
		require.Equal(rt, store.BackfillDone, row.State, row.Reason)
		for i := range 5 {
			k := fmt.Sprintf("3mzzzzzzz%c22a", 'a'+i)
			r, ok, err := c.store.Record(ctx, c.did, ticketNSID, k)
			require.NoError(rt, err)
			if plain[k] == "" {
				require.True(rt, !ok || r.Deleted, "%s is not there any more", k)
				continue
			}
			require.True(rt, ok && !r.Deleted, "%s is there", k)
			require.Equal(rt, plain[k], r.CID, k)
		}
	})
}
