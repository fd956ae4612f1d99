package blobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/blobs"
	"spindle/internal/clock"
)

// envWriter makes the test binary a writer that is going to be killed; see TestKillDuringPut.
const envWriter = "SPINDLE_TEST_BLOB_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envWriter); dir != "" {
		writeForEver(dir)
		return
	}
	os.Exit(m.Run())
}

func open(t *testing.T, change ...func(*blobs.Config)) *blobs.Disk {
	t.Helper()
	cfg := blobs.Config{Dir: t.TempDir()}
	for _, f := range change {
		f(&cfg)
	}
	d, err := blobs.New(cfg)
	require.NoError(t, err)
	return d
}

func bound(n int64) func(*blobs.Config)  { return func(c *blobs.Config) { c.MaxBytes = n } }
func in(dir string) func(*blobs.Config)  { return func(c *blobs.Config) { c.Dir = dir } }
func digest(b []byte) blobs.Digest       { return blobs.Digest(fmt.Sprintf("sha256:%x", sha256.Sum256(b))) }
func content(seed byte, size int) []byte { return bytes.Repeat([]byte{seed}, size) }
func any_(size int64) blobs.Want         { return blobs.Want{Size: size} }
func path(dir string, d blobs.Digest) string {
	return filepath.Join(dir, "sha256", string(d[7:9]), string(d[7:]))
}

func put(t *testing.T, d *blobs.Disk, b []byte) blobs.Digest {
	t.Helper()
	dg, n, err := d.Put(t.Context(), bytes.NewReader(b), any_(-1))
	require.NoError(t, err)
	require.Equal(t, digest(b), dg)
	require.EqualValues(t, len(b), n)
	return dg
}

func get(t *testing.T, d *blobs.Disk, dg blobs.Digest) ([]byte, error) {
	t.Helper()
	r, err := d.Get(t.Context(), dg)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	require.NoError(t, r.Close())
	return b, err
}

// leftovers lists temporary files.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "tmp", "*"))
	require.NoError(t, err)
	return names
}

func TestPutGet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, in(dir))
	for _, size := range []int{0, 1, 256 << 10, 700_000} {
		b := content('x', size)
		dg := put(t, d, b)
		require.Equal(t, dg, put(t, d, b), "twice is the same blob")
		got, err := get(t, d, dg)
		require.NoError(t, err)
		require.Equal(t, b, got)
		n, err := d.Stat(t.Context(), dg)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
	}
	require.Empty(t, leftovers(t, dir))
	require.EqualValues(t, 1+256<<10+700_000, d.Used())
	_, err := get(t, d, digest([]byte("nobody wrote this")))
	require.ErrorIs(t, err, blobs.ErrNotFound)

	again := open(t, in(dir))
	require.Equal(t, d.Used(), again.Used(), "the index is found again")
	got, err := get(t, again, digest(content('x', 1)))
	require.NoError(t, err)
	require.Equal(t, "x", string(got))
}

func TestPutRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, in(dir))
	b := []byte("content")
	broken := errors.New("the line broke")
	for name, c := range map[string]struct {
		r    io.Reader
		want blobs.Want
		err  error
	}{
		"another digest": {bytes.NewReader(b), blobs.Want{Digest: digest([]byte("other")), Size: -1}, blobs.ErrMismatch},
		"too short":      {bytes.NewReader(b[:3]), blobs.Want{Digest: digest(b), Size: 7}, blobs.ErrMismatch},
		"too long":       {bytes.NewReader(b), blobs.Want{Digest: digest(b), Size: 3}, blobs.ErrTooLarge},
		"over the limit": {bytes.NewReader(b), blobs.Want{Size: -1, Limit: 6}, blobs.ErrTooLarge},
		"bad digest":     {bytes.NewReader(b), blobs.Want{Digest: "sha256:../../x", Size: -1}, blobs.ErrBadDigest},
		"upper case":     {bytes.NewReader(b), blobs.Want{Digest: blobs.Digest(strings.ToUpper(string(digest(b)))), Size: -1}, blobs.ErrBadDigest},
		"broken source":  {io.MultiReader(bytes.NewReader(b), iotest.ErrReader(broken)), blobs.Want{Size: -1}, broken},
		"cut source":     {io.MultiReader(bytes.NewReader(b), iotest.ErrReader(io.ErrUnexpectedEOF)), blobs.Want{Size: -1}, io.ErrUnexpectedEOF},
	} {
		_, _, err := d.Put(t.Context(), c.r, c.want)
		require.ErrorIs(t, err, c.err, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := d.Put(ctx, bytes.NewReader(b), any_(-1))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, d.Used(), "a refused write leaves nothing reserved")
	require.Empty(t, leftovers(t, dir))
	for _, c := range []blobs.Config{{Dir: "relative"}, {Dir: t.TempDir(), MaxBytes: -1}, {Dir: "/dev/null/x"}} {
		_, err := blobs.New(c)
		require.ErrorContains(t, err, "blobs: ")
	}
}

// TestDamageIsFound: a blob that changed on the disk, in any way, is never served whole, and the next Put mends it.
func TestDamageIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := content('a', 100_000)
	for name, damage := range map[string]func(string) error{
		"a bit":    func(p string) error { return os.WriteFile(p, append(content('a', 99_999), 'b'), 0o600) },
		"cut":      func(p string) error { return os.Truncate(p, 50_000) },
		"longer":   func(p string) error { return os.WriteFile(p, content('a', 100_001), 0o600) },
		"is empty": func(p string) error { return os.Truncate(p, 0) },
	} {
		d := open(t, in(dir))
		dg := put(t, d, b)
		require.NoError(t, os.Chmod(path(dir, dg), 0o600))
		require.NoError(t, damage(path(dir, dg)), name)
		_, err := get(t, d, dg)
		require.ErrorIs(t, err, blobs.ErrMismatch, name)
		_, err = get(t, d, dg)
		require.ErrorIs(t, err, blobs.ErrNotFound, name)
		require.Zero(t, d.Used())
		put(t, d, b)
		got, err := get(t, d, dg)
		require.NoError(t, err)
		require.Equal(t, b, got)
	}
	d := open(t, in(dir))
	require.NoError(t, os.Remove(path(dir, digest(b))))
	_, err := get(t, d, digest(b))
	require.ErrorIs(t, err, blobs.ErrNotFound, "removed by hand")
}

// TestLeastRecentlyUsedGoes: within the bound, and in the order of use, over restarts too.
func TestLeastRecentlyUsedGoes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	now := clock.NewManual(time.Now().Add(time.Hour))
	cfg := func(c *blobs.Config) { c.Dir, c.MaxBytes, c.Clock = dir, 3000, now }
	d := open(t, cfg)
	var dgs []blobs.Digest
	for i := range 3 {
		dgs = append(dgs, put(t, d, content(byte(i), 1000)))
		now.Advance(time.Hour)
	}
	_, err := get(t, d, dgs[0])
	require.NoError(t, err)
	d = open(t, cfg)
	put(t, d, content(9, 1000))
	_, err = get(t, d, dgs[1])
	require.ErrorIs(t, err, blobs.ErrNotFound, "the one that was used longest ago")
	_, err = get(t, d, dgs[0])
	require.NoError(t, err)
	require.EqualValues(t, 3000, d.Used())

	d = open(t, cfg, bound(1500))
	require.EqualValues(t, 1000, d.Used(), "a bound that became smaller holds from the start")
	freed, err := d.Collect(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1000, freed)
}

// TestHeldBlobsStay: what is in use is never removed, and a store that is full of it says so.
func TestHeldBlobsStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := open(t, in(dir), bound(2000))
	a, b := put(t, d, content('a', 1000)), put(t, d, content('b', 1000))
	release, err := d.Hold(a)
	require.NoError(t, err)
	r, err := d.Get(t.Context(), b)
	require.NoError(t, err)
	_, _, err = d.Put(t.Context(), bytes.NewReader(content('c', 1)), any_(-1))
	require.ErrorIs(t, err, blobs.ErrFull)
	require.ErrorIs(t, d.Remove(t.Context(), a), blobs.ErrInUse)
	require.Empty(t, leftovers(t, dir))
	release()
	release() // twice is once
	put(t, d, content('c', 1000))
	_, err = get(t, d, a)
	require.ErrorIs(t, err, blobs.ErrNotFound)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, content('b', 1000), got)
	require.NoError(t, r.Close())
	require.NoError(t, d.Remove(t.Context(), b))
	require.NoError(t, d.Remove(t.Context(), b), "twice is no error")
	_, err = d.Hold(b)
	require.ErrorIs(t, err, blobs.ErrNotFound)
	_, _, err = d.Put(t.Context(), bytes.NewReader(content('d', 2001)), any_(-1))
	require.ErrorIs(t, err, blobs.ErrFull, "one blob larger than the store")
}

// TestConcurrentUse: writers, readers and collection at once; the bound holds, nothing that is read is damaged, and what a
// reader has open stays.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 64 << 10
	d := open(t, in(dir), bound(most))
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for range 150 {
				b := content(byte(r.IntN(24)), 1+r.IntN(2)*7000)
				switch dg, _, err := d.Put(context.Background(), bytes.NewReader(b), any_(-1)); {
				case errors.Is(err, blobs.ErrFull):
				case err != nil || dg != digest(b):
					t.Errorf("put: %v", err)
				}
				rd, err := d.Get(context.Background(), digest(b))
				if errors.Is(err, blobs.ErrNotFound) {
					continue
				}
				if err != nil {
					t.Errorf("get: %v", err)
					continue
				}
				if got, err := io.ReadAll(rd); err != nil || !bytes.Equal(got, b) {
					t.Errorf("read: %v", err)
				}
				if err := rd.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
				if n := d.Used(); n > most {
					t.Errorf("%d bytes are used, %d allowed", n, most)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, leftovers(t, dir))
	var onDisk int64
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "sha256"), func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			st, serr := e.Info()
			onDisk, err = onDisk+st.Size(), serr
		}
		return err
	}))
	require.Equal(t, onDisk, d.Used(), "the books are right")
}

// writeForEver writes blobs and says which ones it was told are stored.
func writeForEver(dir string) {
	d, err := blobs.New(blobs.Config{Dir: dir})
	for i := 0; err == nil; i++ {
		var dg blobs.Digest
		dg, _, err = d.Put(context.Background(), strings.NewReader(strings.Repeat(fmt.Sprint(i), 20_000)), any_(-1))
		fmt.Println(dg)
	}
	fmt.Println("the writer should have been killed:", err)
}

// TestKillDuringPut: a writer that is killed leaves whole blobs and nothing else.
func TestKillDuringPut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for range 5 {
		w := exec.Command(os.Args[0])
		w.Env = append(os.Environ(), envWriter+"="+dir)
		out, err := w.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, w.Start())
		var told bytes.Buffer
		_, err = io.CopyN(&told, out, 300)
		require.NoError(t, err)
		require.NoError(t, w.Process.Kill())
		rest, err := io.ReadAll(out)
		require.NoError(t, err)
		require.Error(t, w.Wait())
		told.Write(rest)
		d := open(t, in(dir))
		require.Empty(t, leftovers(t, dir))
		for line := range strings.Lines(told.String()) {
			if dg, err := blobs.ParseDigest(strings.TrimSpace(line)); err == nil {
				_, err := get(t, d, dg)
				require.NoError(t, err, "it was said to be stored")
			}
		}
	}
}
