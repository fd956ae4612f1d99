package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
)

// entry is an entry of a test's archive.
type entry struct {
	kind    byte
	name    string
	link    string
	content string
	mode    int64
}

func archived(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if e.mode == 0 {
			e.mode = 0o644
		}
		h := tar.Header{Typeflag: e.kind, Name: e.name, Linkname: e.link, Mode: e.mode, Size: int64(len(e.content)), ModTime: time.Unix(1e9, 0), Uid: os.Getuid(), Gid: os.Getgid()}
		require.NoError(t, w.WriteHeader(&h), e.name)
		_, err := io.WriteString(w, e.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func file(name, content string) entry { return entry{kind: tar.TypeReg, name: name, content: content} }
func folder(name string) entry        { return entry{kind: tar.TypeDir, name: name, mode: 0o755} }
func soft(name, to string) entry      { return entry{kind: tar.TypeSymlink, name: name, link: to} }
func hard(name, to string) entry      { return entry{kind: tar.TypeLink, name: name, link: to} }
func free(int64, int64) error         { return nil }
func repeat(n int, s string) string   { return strings.Repeat(s, n) }
func list(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		switch {
		case d.IsDir():
			rel += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			if err != nil {
				return err
			}
			rel += " -> " + to
		default:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			rel += " = " + string(b)
		}
		out = append(out, rel)
		return nil
	}))
	return out
}

// unpackInto unpacks an archive and gives what is known of it.
func unpackInto(t testing.TB, dir string, b []byte, take func(int64, int64) error) (layerMeta, error) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	u := newUnpacker(root, os.Geteuid() == 0, take)
	err = u.unpack(bytes.NewReader(b))
	return u.meta, err
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	meta, err := unpackInto(t, dir, archived(t,
		folder("./"), folder("a"), file("a/b", "1"), file("/abs", "2"), file("./dot/c", "3"),
		soft("bin", "usr/bin"), file("usr/bin/sh", "4"), file("bin/ls", "5"), // through a link of its own layer
		soft("run", "/var/run"), file("run/pid", "6"), // an absolute one stays inside
		hard("a/hard", "a/b"), hard("a/soft", "bin"),
		file("twice", "old"), file("twice", "new"), // the later one counts
		folder("was"), file("was/x", "x"), file("was", "a file now"),
		file("is", "x"), folder("is"), file("is/y", "y"),
		entry{kind: tar.TypeChar, name: "dev/null"}, entry{kind: tar.TypeBlock, name: "dev/sda"}, entry{kind: tar.TypeFifo, name: "fifo"}, hard("dev/zero", "dev/null"),
		entry{kind: tar.TypeReg, name: "suid", mode: 0o6755}, entry{kind: tar.TypeDir, name: "tmp", mode: 0o3777},
	), free)
	require.NoError(t, err)
	require.Equal(t, []string{
		"a/", "a/b = 1", "a/hard = 1", "a/soft -> usr/bin", "abs = 2", "bin -> usr/bin", "dev/", "dot/", "dot/c = 3", "is/", "is/y = y",
		"run -> /var/run", "suid = ", "tmp/", "twice = new", "usr/", "usr/bin/", "usr/bin/ls = 5", "usr/bin/sh = 4", "var/", "var/run/", "var/run/pid = 6", "was = a file now",
	}, list(t, dir))
	require.Equal(t, []string{"dev", "dot", "usr", "usr/bin", "var", "var/run"}, meta.Implicit)
	require.Equal(t, 4, meta.Left)
	st, err := os.Stat(filepath.Join(dir, "suid"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o755), st.Mode(), "the bit for changing users is not kept")
	st, err = os.Stat(filepath.Join(dir, "tmp"))
	require.NoError(t, err)
	require.Equal(t, fs.ModeDir|fs.ModeSticky|0o777, st.Mode())
	one, err := os.Stat(filepath.Join(dir, "a/b"))
	require.NoError(t, err)
	two, err := os.Stat(filepath.Join(dir, "a/hard"))
	require.NoError(t, err)
	require.True(t, os.SameFile(one, two))
	require.Equal(t, time.Unix(1e9, 0), one.ModTime())
}

// TestHostileArchives: nothing leaves the folder, whatever an archive tries. B-128 has the same for archives of users.
func TestB128HostileArchives(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	canary := filepath.Join(outside, "canary")
	require.NoError(t, os.WriteFile(canary, []byte("alive"), 0o644))
	for name, c := range map[string]struct {
		entries []entry
		err     error // nil: it stays inside
	}{
		"dots":                     {[]entry{file("../evil", "x")}, ErrUnsafe},
		"dots inside":              {[]entry{file("a/../../evil", "x")}, ErrUnsafe},
		"dots that come back":      {[]entry{file("a/../b", "x")}, ErrUnsafe},
		"absolute":                 {[]entry{file(canary, "x")}, nil},
		"absolute with dots":       {[]entry{file("/../../"+canary, "x")}, ErrUnsafe},
		"link to absolute":         {[]entry{soft("a", outside), file("a/canary", "x")}, nil},
		"link to dots":             {[]entry{soft("a", repeat(20, "../")+outside[1:]), file("a/canary", "x")}, nil},
		"link chain":               {[]entry{soft("a", "b"), soft("b", outside), file("a/canary", "x")}, nil},
		"link is the file":         {[]entry{soft("a", canary), file("a", "x")}, nil},
		"link is the folder":       {[]entry{soft("a", outside), folder("a"), file("a/canary", "x")}, nil},
		"link loop":                {[]entry{soft("a", "b"), soft("b", "a"), file("a/x", "x")}, ErrUnsafe},
		"link to itself":           {[]entry{soft("a", "a"), file("a/x", "x")}, ErrUnsafe},
		"link that grows":          {[]entry{soft("a", repeat(1000, "a/")), file("a/x", "x")}, ErrUnsafe},
		"hard link outside":        {[]entry{hard("a", canary), file("a", "x")}, ErrUnsafe},
		"hard link dots":           {[]entry{hard("a", "../../../../"+canary)}, ErrUnsafe},
		"hard link by a link":      {[]entry{soft("a", outside), hard("b", "a/canary")}, ErrUnsafe},
		"hard link to a link":      {[]entry{soft("a", canary), hard("b", "a"), file("b", "x")}, nil},
		"hard link to folder":      {[]entry{folder("a"), hard("b", "a")}, ErrUnsafe},
		"hard link to nothing":     {[]entry{hard("b", "a")}, ErrUnsafe},
		"hard link to itself":      {[]entry{file("a", "x"), hard("a", "a")}, nil},
		"file as folder":           {[]entry{file("a", "x"), file("a/b", "x")}, ErrUnsafe},
		"long name":                {[]entry{file(repeat(256, "a"), "x")}, ErrUnsafe},
		"long path":                {[]entry{file(repeat(2100, "a/")+"b", "x")}, ErrUnsafe},
		"deep path":                {[]entry{file(repeat(200, "a/")+"b", "x")}, ErrUnsafe},
		"long link":                {[]entry{soft("a", repeat(5000, "a"))}, ErrUnsafe},
		"empty link":               {[]entry{{kind: tar.TypeSymlink, name: "a"}}, ErrUnsafe},
		"whiteout of the parent":   {[]entry{folder("a"), file("a/.wh...", "")}, ErrUnsafe},
		"whiteout of nothing":      {[]entry{file(".wh.", "")}, ErrUnsafe},
		"whiteout by a link":       {[]entry{soft("a", outside), file("a/.wh.canary", "")}, nil},
		"opaque by a link":         {[]entry{soft("a", outside), file("a/.wh..wh..opq", "")}, nil},
		"device":                   {[]entry{{kind: tar.TypeBlock, name: "sda", mode: 0o666}}, nil},
		"device then file":         {[]entry{{kind: tar.TypeChar, name: "null", mode: 0o666}, file("null", "x")}, nil},
		"folder is replaced often": {replacements(), ErrUnsafe},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			_, err := unpackInto(t, dir, archived(t, c.entries...), free)
			if c.err == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.err)
			}
			for _, f := range list(t, dir) {
				require.NotContains(t, f, "alive", "the outside was linked in")
			}
			names, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Len(t, names, 1)
			b, err := os.ReadFile(canary)
			require.NoError(t, err)
			require.Equal(t, "alive", string(b))
			st, err := os.Stat(canary)
			require.NoError(t, err)
			require.EqualValues(t, 1, st.Sys().(*syscall.Stat_t).Nlink)
		})
	}
}

func replacements() []entry {
	var out []entry
	for range maxLost + 1 {
		out = append(out, folder("a"), file("a", "x"))
	}
	return out
}

// TestDamagedArchives: what is no archive is an error with a name and no crash.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	good := archived(t, file("a", repeat(5000, "x")), file("b", "y"))
	for i := 1; i < 512+5000; i += 97 { // the first entry's header and content
		_, err := unpackInto(t, t.TempDir(), good[:i], free)
		require.ErrorIs(t, err, ErrDamaged, "cut at %d", i)
	}
	_, err := unpackInto(t, t.TempDir(), []byte(repeat(2000, "no archive")), free)
	require.ErrorIs(t, err, ErrDamaged)
}

// FuzzUnpack: no archive leaves its folder or crashes.
func FuzzUnpack(f *testing.F) {
	f.Add(archived(f, folder("a"), soft("b", "/a"), file("b/c", "x"), hard("d", "a/c"), file(".wh.x", "")))
	f.Add(archived(f, soft("a", "../.."), file("a/x", "x")))
	f.Fuzz(func(t *testing.T, b []byte) {
		outer := t.TempDir()
		dir := filepath.Join(outer, "in")
		require.NoError(t, os.Mkdir(dir, 0o755))
		left := int64(1 << 20)
		_, _ = unpackInto(t, dir, b, func(_, n int64) error {
			if left -= n; left < 0 {
				return ErrTooLarge
			}
			return nil
		})
		names, err := os.ReadDir(outer)
		require.NoError(t, err)
		require.Len(t, names, 1)
	})
}

func zipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

func TestArchive(t *testing.T) {
	t.Parallel()
	plain := archived(t, file("a", repeat(100_000, "abc")))
	diff := fmt.Sprintf("sha256:%x", sha256.Sum256(plain))
	e, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	zst := e.EncodeAll(plain, nil)
	for name, b := range map[string][]byte{"plain": plain, "gzip": zipped(t, plain), "zstd": zst, "two gzips": append(zipped(t, plain[:700]), zipped(t, plain[700:])...)} {
		a, err := newArchive(t.Context(), bytes.NewReader(b), 1<<20)
		require.NoError(t, err, name)
		got := make([]byte, 600)
		_, err = io.ReadFull(a, got)
		require.NoError(t, err, name)
		require.NoError(t, a.finish(diff), name)
		a.end()

		a, err = newArchive(t.Context(), bytes.NewReader(b), 1<<20)
		require.NoError(t, err, name)
		require.ErrorIs(t, a.finish("sha256:other"), ErrDamaged, name)
		a, err = newArchive(t.Context(), bytes.NewReader(b), 1000)
		require.NoError(t, err, name)
		require.ErrorIs(t, a.finish(diff), ErrTooLarge, name)
		a, err = newArchive(t.Context(), bytes.NewReader(b[:len(b)-5]), 1<<20)
		require.NoError(t, err, name)
		require.ErrorIs(t, a.finish(diff), ErrDamaged, name)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a, err = newArchive(ctx, bytes.NewReader(b), 1<<20)
		require.NoError(t, err, name)
		require.ErrorIs(t, a.finish(diff), context.Canceled, name)
	}
}

// zeros gives n of them.
type zeros int64

func (z *zeros) Read(p []byte) (int, error) {
	if *z <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), int64(*z))
	clear(p[:n])
	*z -= zeros(n)
	return int(n), nil
}

// TestBomb: a small archive that unpacks to gigabytes of zeros is stopped soon, in each compression.
func TestBomb(t *testing.T) {
	t.Parallel()
	pack := map[string]func(io.Writer) io.WriteCloser{
		"gzip": func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"zstd": func(w io.Writer) io.WriteCloser {
			z, err := zstd.NewWriter(w)
			require.NoError(t, err)
			return z
		},
	}
	for name, wrap := range pack {
		var buf bytes.Buffer
		w := wrap(&buf)
		z := zeros(40 << 20)
		_, err := io.Copy(w, &z)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		a, err := newArchive(t.Context(), &buf, 100<<30)
		require.NoError(t, err)
		a.free = 1 << 20
		require.ErrorIs(t, a.finish(""), ErrUnsafe, name)
		require.LessOrEqual(t, a.out, int64(30<<20))
		a.end()
	}
	// A zstd frame that asks for a window of gigabytes gets none (RFC 8878, 3.1.1.1.2).
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x00, 0x00, 0x00}
	a, err := newArchive(t.Context(), bytes.NewReader(frame), 1<<20)
	require.NoError(t, err)
	require.ErrorIs(t, a.finish(""), ErrDamaged)
	a.end()
}

// merge lays archives over another.
func merge(t testing.TB, layers ...[]byte) (string, error) {
	t.Helper()
	to := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(to, 0o755))
	m := merger{to: to, take: free, chown: os.Geteuid() == 0, times: map[string]time.Time{}}
	for _, b := range layers {
		from := t.TempDir()
		meta, err := unpackInto(t, from, b, free)
		require.NoError(t, err)
		before := list(t, from)
		if err := m.layer(t.Context(), from, meta); err != nil {
			return to, err
		}
		require.Equal(t, before, list(t, from))
	}
	return to, m.finish()
}

// TestLayersOverAnother: what upper layers say of lower ones (image-spec, layer.md).
func TestLayersOverAnother(t *testing.T) {
	t.Parallel()
	lower := archived(t, folder("etc"), file("etc/a", "1"), file("etc/b", "2"), folder("opt"), file("opt/x/y", "3"), file("gone/deep/z", "4"),
		soft("lib", "usr/lib"), file("usr/lib/l", "5"), entry{kind: tar.TypeDir, name: "private", mode: 0o700})
	for name, c := range map[string]struct {
		upper []entry
		want  []string
	}{
		"adds and replaces": {[]entry{file("etc/b", "new"), file("etc/c", "6")}, []string{"etc/a = 1", "etc/b = new", "etc/c = 6"}},
		"whiteout":          {[]entry{file("etc/.wh.a", ""), file(".wh.gone", "")}, []string{"!etc/a = 1", "!gone/", "etc/b = 2"}},
		"opaque":            {[]entry{folder("opt"), file("opt/.wh..wh..opq", ""), file("opt/new", "7")}, []string{"opt/", "opt/new = 7", "!opt/x/"}},
		"opaque last":       {[]entry{folder("opt"), file("opt/new", "7"), file("opt/.wh..wh..opq", "")}, []string{"opt/new = 7", "!opt/x/"}},
		"whiteout and file": {[]entry{file("etc/a", "again"), file("etc/.wh.a", "")}, []string{"etc/a = again"}},
		"folder for file":   {[]entry{folder("etc/a"), file("etc/a/in", "8")}, []string{"etc/a/", "etc/a/in = 8"}},
		"file for folder":   {[]entry{file("opt", "9")}, []string{"opt = 9", "!opt/x/"}},
		"link for folder":   {[]entry{soft("opt", "/etc")}, []string{"opt -> /etc", "etc/a = 1"}},
		"of nothing":        {[]entry{file("no/such/.wh.thing", ""), file("nope/.wh..wh..opq", "")}, []string{"etc/a = 1"}},
		"through a file":    {[]entry{file("etc/x", "")}, []string{"etc/x = "}},
		"of aufs":           {[]entry{folder(".wh..wh.plnk"), file(".wh..wh.aufs", "")}, []string{"!.wh..wh.aufs = ", "etc/a = 1"}},
	} {
		root, err := merge(t, lower, archived(t, c.upper...))
		require.NoError(t, err, name)
		got := list(t, root)
		for _, want := range c.want {
			if not, ok := strings.CutPrefix(want, "!"); ok {
				require.NotContains(t, got, not, name)
				continue
			}
			require.Contains(t, got, want, name)
		}
	}
	root, err := merge(t, lower, archived(t, file("private/x", "1")))
	require.NoError(t, err)
	st, err := os.Stat(filepath.Join(root, "private"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), st.Mode().Perm(), "a folder on the way keeps what the lower layer says")
}

// TestHostileLayers: links of one layer lead no other one outside, nor does a whiteout.
func TestHostileLayers(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "canary"), []byte("alive"), 0o644))
	require.NoError(t, os.Chtimes(outside, time.Unix(5e8, 0), time.Unix(5e8, 0)))
	links := archived(t, soft("a", outside), folder("d"), file("d/x", "1"))
	for name, upper := range map[string][]entry{
		"write":            {file("a/canary", "dead")},
		"whiteout":         {file("a/.wh.canary", "")},
		"opaque":           {file("a/.wh..wh..opq", "")},
		"folder":           {folder("a"), file("a/canary", "dead")},
		"folder to link":   {file(".wh.d", ""), soft("d", outside)},
		"whiteout of dots": {file("a/b/.wh.c", "")},
	} {
		_, err := merge(t, links, archived(t, upper...))
		require.NoError(t, err, name)
		b, err := os.ReadFile(filepath.Join(outside, "canary"))
		require.NoError(t, err, name)
		require.Equal(t, "alive", string(b), name)
		st, err := os.Stat(outside)
		require.NoError(t, err)
		require.Equal(t, time.Unix(5e8, 0), st.ModTime(), name)
	}
}

// TestBudget: entries and bytes are bounded, and small files are not free.
func TestBudget(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{MaxImage: 1 << 20, MaxEntries: 50, MaxBytes: 1 << 30}, roots: map[string]*root{}, layers: map[string]*layerTree{}}
	var many []entry
	for i := range 51 {
		many = append(many, file(fmt.Sprint(i), ""))
	}
	for name, entries := range map[string][]entry{"entries": many, "bytes": {file("a", repeat(1<<20, "x")), file("b", "x")}, "size": {file("a", repeat(1<<20+1, "x"))}} {
		b := s.newBudget()
		_, err := unpackInto(t, t.TempDir(), archived(t, entries...), b.take)
		require.ErrorIs(t, err, ErrTooLarge, name)
		b.giveBack()
		require.Zero(t, s.used, name)
	}
	s.cfg.MaxBytes = 100
	b := s.newBudget()
	_, err := unpackInto(t, t.TempDir(), archived(t, file("a", "x")), b.take)
	require.ErrorIs(t, err, ErrFull)
}

func TestAccount(t *testing.T) {
	t.Parallel()
	passwd := "root:x:0:0::/root:/bin/sh\nbroken\npostgres:x:999:998::/var/lib:/bin/sh\nodd:x:1:x::/:/bin/sh\n"
	group := "root:x:0:\nstaff:x:50:\n"
	for user, want := range map[string]string{
		"": "1000:1000:spindle-workflow", "root": "1000:1000:spindle-workflow", "0": "1000:1000:spindle-workflow", "0:0": "1000:1000:spindle-workflow",
		"postgres": "999:998:postgres", "postgres:staff": "999:50:postgres", "999": "999:998:postgres", "4242": "4242:0:4242", "4242:7": "4242:7:4242",
		"nobody-here": "error", "postgres:nogroup": "error", "-5": "error", "odd": "error", "99999999999": "error", "1:-1": "error",
	} {
		uid, gid, name, err := account(user, passwd, group)
		got := fmt.Sprintf("%d:%d:%s", uid, gid, name)
		if err != nil {
			got = "error"
		}
		require.Equal(t, want, got, user)
	}
	require.Equal(t, "spindle-workflow:x:1000:1000:spindle-workflow:/home/spindle-workflow:/bin/sh", strings.Split(withAccount("node:x:1000:1000::/:/bin/sh\n", "", "spindle-workflow:x:1000:1000:spindle-workflow:/home/spindle-workflow:/bin/sh\n", 1000), "\n")[0])
	require.True(t, slices.Equal([]string{"A=1", "PATH=" + defaultPath}, environment([]string{"A=1", "broken", "=x", "Z=\x00"})))
}
