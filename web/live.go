package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"spindle/logs"
)

const (
	// calm is the least time between two updates of a page's sections.
	calm = 250 * time.Millisecond
	// beat is how often a quiet stream says that it is alive; sections that no change announces are read again then.
	beat = 15 * time.Second
	// logWait is how long the stream of a log that does not exist yet waits between two looks.
	logWait = 500 * time.Millisecond
)

// liveURL is the address of the stream for the page at u.
func liveURL(u *url.URL, since int64, t *tail) string {
	q := url.Values{"view": {u.RequestURI()}, "since": {strconv.FormatInt(since, 10)}}
	if t != nil {
		q.Set("line", strconv.FormatInt(t.line, 10))
		q.Set("attempt", strconv.Itoa(t.ref.Attempt))
	}
	return "/_sse?" + q.Encode()
}

// slots bound what is open at a time, in all and for each client.
type slots struct {
	max, perClient int

	mu   sync.Mutex
	open int
	by   map[string]int
}

func newSlots(most, perClient int) *slots {
	return &slots{max: most, perClient: perClient, by: map[string]int{}}
}

// take is false when there is no room. client may be empty: then only the sum is bounded.
func (s *slots) take(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= s.max || client != "" && s.by[client] >= s.perClient {
		return false
	}
	s.open++
	if client != "" {
		s.by[client]++
	}
	return true
}

func (s *slots) give(client string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if client == "" {
		return
	}
	if s.by[client]--; s.by[client] <= 0 {
		delete(s.by, client)
	}
}

// serveStream sends what changes on one page, as server-sent events: "html" holds sections by their
// element's id, "lines" the next lines of the log with the cursor as event id, "done" says that nothing follows.
func (w *Web) serveStream(rw http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	u, err := url.ParseRequestURI(local(q.Get("view")))
	if err != nil {
		http.Error(rw, "view is not the address of a page", http.StatusBadRequest)
		return
	}
	t, _, ok := w.find(u)
	if !ok {
		http.Error(rw, "there is no such page", http.StatusNotFound)
		return
	}
	client := w.client(r)
	if !w.slots.take(client) {
		rw.Header().Set("Retry-After", "5")
		http.Error(rw, "too many open streams; the page asks again by itself", http.StatusServiceUnavailable)
		return
	}
	defer w.slots.give(client)
	w.wg.Add(1)
	defer w.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	rw.Header().Set("Content-Type", "text/event-stream")
	rw.Header().Set("Cache-Control", "no-store")
	rw.Header().Set("X-Accel-Buffering", "no")
	s := &stream{
		w: w, target: t, out: rw, control: http.NewResponseController(rw), sent: map[string]uint64{}, seed: maphash.MakeSeed(),
		since: number(q.Get("since")), batches: make(chan batch),
	}
	line := number(q.Get("line"))
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		line = number(id)
	}
	attempt := int(number(q.Get("attempt")))
	if err := s.run(ctx, q.Has("line"), attempt, line); err != nil && ctx.Err() == nil {
		w.c.Log.Debug("a page's stream ended", "view", u.Path, "err", err)
	}
}

// number is s, or 0 if it is not a number that makes sense.
func number(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<48 {
		return 0
	}
	return n
}

// stream is one page that is open somewhere.
type stream struct {
	w       *Web
	target  target
	out     http.ResponseWriter
	control *http.ResponseController
	seed    maphash.Seed
	sent    map[string]uint64 // what each section looked like when it was sent last
	since   int64             // the newest change that has been looked at
	batches chan batch
}

// batch is some lines of a log, and the cursor after them.
type batch struct {
	lines []line
	next  int64
	ended bool
	err   error
}

func (s *stream) run(ctx context.Context, follow bool, attempt int, from int64) error {
	if err := s.send(": open\nretry: 2000\n\n"); err != nil {
		return err
	}
	logOpen := false
	if a, ok := s.target.(workflowAt); ok && follow {
		logOpen = true
		done := make(chan struct{})
		defer func() { <-done }()
		ctx2, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			defer close(done)
			s.follow(ctx2, a, attempt, from)
		}()
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var pause <-chan time.Time // set while an update waits for its turn
	var last time.Time
	live := true
	for {
		changed := s.w.c.Pipelines.Changed()
		concerned, err := s.concerned(ctx)
		if err != nil {
			return err
		}
		if concerned && pause == nil {
			pause = time.After(max(0, calm-time.Since(last)))
		}
		if !live && !logOpen && pause == nil {
			return s.send("event: done\ndata: {}\n\n")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-pause:
			pause, last = nil, time.Now()
			if live, err = s.update(ctx); err != nil {
				return err
			}
		case b := <-s.batches:
			if b.err != nil {
				return b.err
			}
			if err := s.lines(b); err != nil {
				return err
			}
			if b.ended {
				logOpen = false
				pause = time.After(0) // the end of the log is often the end of the workflow
			}
		case <-tick.C:
			if err := s.send(": alive\n\n"); err != nil {
				return err
			}
			if live, err = s.update(ctx); err != nil {
				return err
			}
		}
	}
}

// concerned reads the new changes and tells whether one is visible on the page.
func (s *stream) concerned(ctx context.Context) (bool, error) {
	const most = 256
	changes, err := s.w.c.Pipelines.Changes(ctx, s.since, most)
	if err != nil {
		return false, fmt.Errorf("read the changes: %w", err)
	}
	if len(changes) == most {
		if s.since, err = s.w.c.Pipelines.LastChange(ctx); err != nil {
			return false, fmt.Errorf("read the newest change: %w", err)
		}
		return true, nil
	}
	hit := false
	for _, c := range changes {
		s.since = c.Number
		hit = hit || s.target.concerns(c)
	}
	return hit, nil
}

// update sends the sections that look different now, and tells whether the page is still live.
func (s *stream) update(ctx context.Context) (bool, error) {
	v, err := s.target.load(ctx, false)
	if errors.Is(err, errNotFound) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	out := map[string]string{}
	for _, name := range v.sections {
		var b bytes.Buffer
		if err := s.w.pages[v.template].ExecuteTemplate(&b, name, v.data); err != nil {
			return true, fmt.Errorf("render %s: %w", name, err)
		}
		if sum := maphash.Bytes(s.seed, b.Bytes()); s.sent[name] != sum {
			s.sent[name] = sum
			out["live-"+name] = b.String()
		}
	}
	if len(out) == 0 {
		return v.live, nil
	}
	msg := struct {
		HTML  map[string]string `json:"html"`
		Title string            `json:"title"`
		Class string            `json:"class,omitempty"`
	}{HTML: out, Title: v.title}
	if v.mark != nil {
		msg.Title, msg.Class = v.mark.Symbol+" "+v.title, v.mark.Class
	}
	return v.live, s.event("html", "", msg)
}

// lines sends lines of the log.
func (s *stream) lines(b batch) error {
	if len(b.lines) == 0 {
		return nil
	}
	var html bytes.Buffer
	if err := s.w.pages["workflow"].ExecuteTemplate(&html, "lines", b.lines); err != nil {
		return fmt.Errorf("render lines of a log: %w", err)
	}
	return s.event("lines", strconv.FormatInt(b.next, 10), struct {
		HTML string `json:"html"`
		Next int64  `json:"next"`
	}{html.String(), b.next})
}

func (s *stream) event(name, id string, v any) error {
	j, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	head := "event: " + name + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	return s.send(head + "data: " + string(j) + "\n\n")
}

func (s *stream) send(text string) error {
	// Not every writer has deadlines; then the server's own ones hold.
	if err := s.control.SetWriteDeadline(time.Now().Add(s.w.c.SendWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("set the deadline of a stream: %w", err)
	}
	if _, err := s.out.Write([]byte(text)); err != nil {
		return fmt.Errorf("write to a stream: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write to a stream: %w", err)
	}
	return nil
}

// follow hands over the lines of the log from a line on until it ends.
func (s *stream) follow(ctx context.Context, a workflowAt, attempt int, from int64) {
	give := func(b batch) bool {
		select {
		case s.batches <- b:
			return true
		case <-ctx.Done():
			return false
		}
	}
	ref, err := s.await(ctx, a, attempt)
	if err != nil {
		give(batch{err: err})
		return
	}
	if ref == (logs.Ref{}) {
		give(batch{ended: true})
		return
	}
	offset, err := s.w.c.Logs.Offset(ctx, ref, from)
	if err != nil {
		give(batch{err: fmt.Errorf("find line %d of the log: %w", from, err)})
		return
	}
	origin, err := s.w.origin(ctx, ref)
	if err != nil {
		give(batch{err: err})
		return
	}
	r := newReader(origin)
	for {
		got, next, ended, err := s.w.c.Logs.Follow(ctx, ref, offset, chunk)
		if err != nil {
			give(batch{err: fmt.Errorf("follow the log: %w", err)})
			return
		}
		b := batch{ended: ended}
		for _, l := range got {
			from++
			b.lines = append(b.lines, r.line(from, l))
		}
		b.next, offset = from, next
		if !give(b) || ended {
			return
		}
	}
}

// await waits for the log of the attempt that the page shows (0: the first there will be). It is empty when
// there will be none.
func (s *stream) await(ctx context.Context, a workflowAt, attempt int) (logs.Ref, error) {
	for {
		changed := s.w.c.Pipelines.Changed()
		_, f, _, err := a.locate(ctx)
		if err != nil {
			return logs.Ref{}, err
		}
		ref := refOf(a.id, f, max(1, attempt))
		if s.w.c.Logs.Exists(ref) {
			return ref, nil
		}
		if f.Status.Terminal() || f.Attempt > ref.Attempt {
			return logs.Ref{}, nil
		}
		select {
		case <-changed:
		case <-time.After(logWait):
		case <-ctx.Done():
			return logs.Ref{}, ctx.Err()
		}
	}
}
