package web

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"spindle/logs"
	"spindle/pipeline"
)

// serveRaw is the whole log as plain text to keep: no escapes, nothing that a browser would run or a terminal obey.
func (w *Web) serveRaw(rw http.ResponseWriter, r *http.Request, a workflowAt) {
	_, _, ref, err := a.locate(r.Context())
	if err == nil && !w.c.Logs.Exists(ref) {
		err = errNotFound
	}
	if errors.Is(err, errNotFound) {
		w.problem(rw, r, http.StatusNotFound)
		return
	}
	if err != nil {
		w.c.Log.Error("read a log", "path", r.URL.Path, "err", err)
		w.problem(rw, r, http.StatusInternalServerError)
		return
	}
	h := rw.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+fileName(ref)+`"`)
	out := bufio.NewWriterSize(&pieces{to: rw, control: http.NewResponseController(rw), within: w.c.SendWithin}, 64<<10)
	var offset int64
	for {
		lines, next, _, err := w.c.Logs.Read(r.Context(), ref, offset, chunk)
		if err != nil {
			w.c.Log.Warn("read a log", "path", r.URL.Path, "err", err)
			break
		}
		if len(lines) == 0 {
			break
		}
		for _, l := range lines {
			if err := writePlain(out, l); err != nil {
				return
			}
		}
		offset = next
	}
	_ = out.Flush() // the reader is gone: nobody to tell
}

// pieces writes each piece before a deadline of its own: a long log may take long, as long as somebody reads it.
type pieces struct {
	to      io.Writer
	control *http.ResponseController
	within  time.Duration
}

// Write implements io.Writer.
func (p *pieces) Write(b []byte) (int, error) {
	// Not every writer has deadlines; then the server's own ones hold.
	if err := p.control.SetWriteDeadline(time.Now().Add(p.within)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.to.Write(b)
}

func writePlain(out *bufio.Writer, l logs.Line) error {
	text := plain(strings.TrimSuffix(l.Content, "\n"))
	if l.Kind == logs.Control {
		if l.StepStatus == logs.Start {
			text = "--- " + text
		} else {
			text = strings.TrimSpace("--- " + l.Outcome + " " + text)
		}
	}
	_, err := out.WriteString(text + "\n")
	return err
}

// plain is s without escapes and control characters.
func plain(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		if s[0] == 0x1b {
			n, _, _ := escape(s)
			s = s[n:]
			continue
		}
		i := strings.IndexByte(s, 0x1b)
		if i < 0 {
			i = len(s)
		}
		for _, r := range s[:i] {
			if r == '\n' {
				b.WriteByte('\n')
				continue
			}
			b.WriteString(visible(r))
		}
		s = s[i:]
	}
	return b.String()
}

func fileName(ref logs.Ref) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, ref.Pipeline+"-"+ref.Workflow) + ".txt"
}

// status is the outcome that a log line names.
func status(outcome string) pipeline.Status {
	for _, s := range pipeline.Statuses() {
		if string(s) == outcome {
			return s
		}
	}
	return pipeline.Error
}
