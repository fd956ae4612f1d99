package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"spindle/engines"
)

// filesDir is where the files that commands may write lie in the guest. It is root's and the files are everybody's, so
// that a command can change what is in them and cannot put a link in their place.
const filesDir = "/spindle/files"

// collectBytes is one byte more than is taken of a file, so that too much is seen.
var collectBytes = strconv.Itoa(engines.FileBytes + 1)

// collectTime bounds the wait for init's answer.
const collectTime = 10 * time.Second

// fileEnv are the variables of a command's files.
func fileEnv(names []string) []string {
	out := make([]string, 0, len(names))
	for i, n := range names {
		out = append(out, n+"="+filesDir+"/"+strconv.Itoa(i))
	}
	return out
}

// errSilent is an init that does not answer as it should.
var errSilent = errors.New("init did not answer")

// collect asks init for what is in the files, which it then empties. It costs no process when all are empty. What ends
// a file in the answer is a word that nobody in the sandbox knew when it was written.
func (a *attempt) collect(ctx context.Context, names []string) (map[string][]byte, error) {
	token := rand.Text()
	a.mu.Lock()
	ask := a.ask
	a.token = token
	a.mu.Unlock()
	if _, err := io.WriteString(ask, token+"\n"); err != nil {
		return nil, fmt.Errorf("ask init: %w", err)
	}
	slow := time.NewTimer(collectTime)
	defer slow.Stop()
	select {
	case b := <-a.told:
		return readAnswer(b, token, names)
	case <-a.gone:
		return nil, errSilent
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-slow.C:
		return nil, errSilent
	}
}

// readAnswer takes an answer apart.
func readAnswer(b []byte, token string, names []string) (map[string][]byte, error) {
	b, ok := bytes.CutSuffix(b, []byte(token+".\n"))
	if !ok {
		return nil, errSilent // of an earlier question
	}
	var out map[string][]byte
	end := []byte("\n" + token + "\n")
	for len(b) > 0 {
		head, rest, ok := bytes.Cut(b, []byte("\n"))
		n, err := strconv.Atoi(string(head))
		if !ok || err != nil {
			return nil, errSilent
		}
		var content []byte
		if content, b, ok = bytes.Cut(rest, end); !ok {
			return nil, errSilent
		}
		if n >= 0 && n < len(names) {
			if out == nil {
				out = map[string][]byte{}
			}
			out[names[n]] = bytes.Clone(content)
		}
	}
	return out, nil
}

// answers hands on what init says, an answer at a time: they end with a line of a word and a dot. What is more than an
// answer can be is dropped.
func (a *attempt) answers(r *bufio.Reader) {
	var b []byte
	for {
		line, err := r.ReadSlice('\n')
		if len(b)+len(line) <= engines.MaxFiles*(engines.FileBytes+1+64)+64 {
			b = append(b, line...)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if !a.endsAnswer(line) {
			continue
		}
		select {
		case <-a.told: // nobody waited for it
		default:
		}
		a.told <- b
		b = nil
	}
}

// endsAnswer tells whether line is the last of the answer that is waited for.
func (a *attempt) endsAnswer(line []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token != "" && string(line) == a.token+".\n"
}

// uncollected is the result of a command whose files could not be read: the sandbox ended, or was stopped.
func (a *attempt) uncollected(ctx context.Context, res engines.Result, err error) (engines.Result, error) {
	if ctx.Err() != nil {
		a.end(ctx.Err(), engines.KilledCancel)
	} else {
		a.settle()
	}
	if a.isOver() {
		<-a.gone
		return a.overResult(res)
	}
	return res, engines.Fault("what the command wrote for later ones could not be read", err)
}
