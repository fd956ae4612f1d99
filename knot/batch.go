package knot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
)

// errMissing means that an object is not in the repository on our disk.
var errMissing = errors.New("object not here")

// object is one git object as read.
type object struct {
	id   string
	kind string // commit, tree, blob, tag
	size int64
	data []byte
}

// batch is one `git cat-file --batch-command` process: one process for all the objects of a call.
type batch struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// withBatch starts a reader on r, calls fn with it, and waits for its end. The process has no network.
func (c *Client) withBatch(ctx context.Context, r bareRepo, fn func(*batch) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	com := command{op: "read objects", dir: r.dir, args: []string{"cat-file", "--batch-command"}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd, errs := c.git.prepare(ctx, com)
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("git %s: %w", com.op, err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("git %s: %w", com.op, err)
	}
	if err := cmd.Start(); err != nil {
		return &GitError{Op: com.op, Kind: ErrGitMissing, Detail: lastWords(err.Error())}
	}
	c.git.bound(cmd.Process.Pid, com)
	ferr := fn(&batch{in: in, out: bufio.NewReaderSize(out, 32<<10)})
	_ = in.Close() // the end of input ends git; if git is gone already, Wait tells
	if ferr != nil {
		cancel(ferr) // the rest of its output is of no use
	}
	werr := cmd.Wait()
	if ferr == nil {
		return c.git.verdict(com, werr, context.Cause(ctx), errs.String())
	}
	if errors.Is(ferr, io.ErrUnexpectedEOF) || errors.Is(ferr, io.EOF) {
		return &GitError{Op: com.op, Kind: ErrCorrupt, Detail: lastWords(errs.String())}
	}
	return ferr
}

// info asks for kind and size of name (a hash, or hash:path). Error: errMissing.
func (b *batch) info(name string) (object, error) {
	if _, err := io.WriteString(b.in, "info "+name+"\n"); err != nil {
		return object{}, io.ErrUnexpectedEOF
	}
	return b.header()
}

// read gets name if it is at most max bytes. Errors: errMissing, ErrTooLarge.
func (b *batch) read(name string, max int64) (object, error) {
	o, err := b.info(name)
	if err != nil {
		return o, err
	}
	if o.size > max {
		return o, fmt.Errorf("%w: git %s of %d bytes, allowed are %d", ErrTooLarge, o.kind, o.size, max)
	}
	if _, err := io.WriteString(b.in, "contents "+o.id+"\n"); err != nil {
		return o, io.ErrUnexpectedEOF
	}
	again, err := b.header()
	if err != nil {
		return o, err
	}
	if again.size != o.size {
		return o, io.ErrUnexpectedEOF
	}
	o.data = make([]byte, o.size+1)
	if _, err := io.ReadFull(b.out, o.data); err != nil {
		return o, io.ErrUnexpectedEOF
	}
	o.data = o.data[:o.size] // git writes a line end after each object
	return o, nil
}

func (b *batch) header() (object, error) {
	line, err := b.out.ReadSlice('\n')
	if err != nil {
		return object{}, io.ErrUnexpectedEOF
	}
	s := strings.TrimSuffix(string(line), "\n")
	if strings.HasSuffix(s, " missing") {
		return object{}, errMissing
	}
	f := strings.Fields(s)
	if len(f) != 3 {
		return object{}, io.ErrUnexpectedEOF
	}
	n, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || n < 0 || checkSHA(f[0]) != nil {
		return object{}, io.ErrUnexpectedEOF
	}
	return object{id: f[0], kind: f[1], size: n}, nil
}

// entry is one line of a git tree.
type entry struct {
	mode string // as git writes it: 40000, 100644, 100755, 120000, 160000
	name string
	id   string
}

// parseTree reads the bytes of a tree object whose hashes are rawLen bytes long (20 or 32).
func parseTree(data []byte, rawLen int) ([]entry, error) {
	var out []entry
	for len(data) > 0 {
		sp := bytes.IndexByte(data, ' ')
		if sp < 0 {
			return nil, ErrCorrupt
		}
		nul := bytes.IndexByte(data[sp:], 0)
		if nul < 0 || len(data) < sp+nul+1+rawLen {
			return nil, ErrCorrupt
		}
		end := sp + nul + 1
		out = append(out, entry{
			mode: string(data[:sp]),
			name: string(data[sp+1 : sp+nul]),
			id:   fmt.Sprintf("%x", data[end:end+rawLen]),
		})
		data = data[end+rawLen:]
	}
	return out, nil
}

// message is what a commit object says to people.
func message(commit []byte) string {
	_, msg, _ := bytes.Cut(commit, []byte("\n\n"))
	msg = bytes.TrimLeft(msg[:min(len(msg), maxMessage)], "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(msg), "?"))
}
