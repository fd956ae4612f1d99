//go:build crashpoints

package store

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// crashing says that this build can be told to die. The files of this tag are for the sweep of cmd/spindle alone.
const crashing = true

// crashes has the process die by SIGKILL at a commit. A point is "before" or "after" with the kind of write, and comes
// again and again: CRASH_AT names one as "before accept hints 3", the third time that it comes. CRASH_LOG is a file that
// gets a line for each point that comes.
type crashes struct {
	mu   sync.Mutex
	seen map[string]int
	log  *os.File
}

func (c *crashes) at(when string, o *op) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
		if path := os.Getenv("CRASH_LOG"); path != "" {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				panic(err)
			}
			c.log = f
		}
	}
	point := when + " " + kind(o)
	c.seen[point]++
	point = fmt.Sprintf("%s %d", point, c.seen[point])
	if point == os.Getenv("CRASH_AT") {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
	if c.log != nil {
		_, _ = fmt.Fprintln(c.log, point)
	}
}

// kind is the write without the names of what it is about.
func kind(o *op) string {
	var words []string
	for _, w := range strings.Fields(o.name) {
		if !strings.ContainsAny(w, ":/0123456789") {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// kind tells which hand-offs of the way in e is.
func (e Effects) kind() string {
	var words []string
	for _, k := range []struct {
		is   bool
		name string
	}{
		{len(e.Rechecks) > 0, "hints"}, {e.Cursor != nil, "cursor"}, {e.Gap != nil, "gap"}, {e.Settled != nil, "settled"},
		{len(e.Repos) > 0, "binding"}, {len(e.Collaborators) > 0 || len(e.ReplaceCollaborators) > 0, "collaborators"},
		{len(e.Records) > 0, "records"}, {len(e.Members) > 0 || len(e.ReplaceMembers) > 0, "members"}, {e.Pull != nil, "pull"},
		{e.Event != nil, "event"}, {e.Move != nil, "late"}, {e.Token != nil, "token"},
	} {
		if k.is {
			words = append(words, k.name)
		}
	}
	return strings.Join(words, "+")
}
