package fault

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"spindle/internal/clock"
)

// Rule says how requests go wrong. Delay combines with each of the others; of Silence, Cut, Status and
// Truncate the first one set counts.
type Rule struct {
	// Path is the prefix of the URL paths that the rule covers. Empty covers all.
	Path string
	// Match narrows the rule further. Nil matches all. It is called under a lock and must not block.
	Match func(*http.Request) bool
	// Skip lets this many matching requests pass first.
	Skip int
	// Times is how many requests the rule applies to before it is spent. Zero means no end.
	Times int
	// Delay is the wait before anything else happens.
	Delay time.Duration
	// Silence accepts the request and never answers, until the client leaves or the server closes.
	Silence bool
	// Cut closes the connection without an answer.
	Cut bool
	// Status answers with this HTTP status and a small XRPC error body.
	Status int
	// Truncate lets this many bytes of the answer's body out and then closes the connection. Zero: off.
	Truncate int
}

// Gate applies rules to the requests of one server. Its zero value passes all; it is safe for concurrent
// use.
type Gate struct {
	mu    sync.Mutex
	rules []*Rule
	seen  []Seen
}

// Seen is a request as it came in.
type Seen struct {
	Time   time.Time
	Method string
	Path   string
	Query  string
}

// maxSeen bounds what a gate remembers of the requests.
const maxSeen = 4096

// Set replaces the rules. For each request the first rule that matches is obeyed.
func (g *Gate) Set(rules ...Rule) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rules = nil
	for _, r := range rules {
		g.rules = append(g.rules, &r)
	}
}

// Clear takes all rules away.
func (g *Gate) Clear() { g.Set() }

// Requests lists the requests whose path begins with prefix, oldest first; only the latest few thousand
// requests are remembered.
func (g *Gate) Requests(prefix string) []Seen {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Seen
	for _, s := range g.seen {
		if strings.HasPrefix(s.Path, prefix) {
			out = append(out, s)
		}
	}
	return out
}

// pick notes the request and returns a copy of the rule that it obeys.
func (g *Gate) pick(r *http.Request) (Rule, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.seen) == maxSeen {
		g.seen = append(g.seen[:0], g.seen[maxSeen/2:]...)
	}
	g.seen = append(g.seen, Seen{Time: clock.Real{}.Now(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery})
	for i, rule := range g.rules {
		if !strings.HasPrefix(r.URL.Path, rule.Path) || rule.Match != nil && !rule.Match(r) {
			continue
		}
		if rule.Skip > 0 {
			rule.Skip--
			continue
		}
		if rule.Times > 0 {
			if rule.Times--; rule.Times == 0 {
				g.rules = append(g.rules[:i:i], g.rules[i+1:]...)
			}
		}
		return *rule, true
	}
	return Rule{}, false
}

// Wrap puts the gate before next.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rule, ok := g.pick(r)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		// Sockets are real here, so the wait is real time.
		if (clock.Real{}).Sleep(r.Context(), rule.Delay) != nil {
			return
		}
		switch {
		case rule.Silence:
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case rule.Cut:
			// The documented way to close the connection without an answer.
			panic(http.ErrAbortHandler)
		case rule.Status != 0:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(rule.Status)
			_, _ = w.Write([]byte(`{"error":"ScriptedFault","message":"this answer was asked for"}`))
		case rule.Truncate > 0:
			next.ServeHTTP(&short{ResponseWriter: w, left: rule.Truncate}, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// short is a ResponseWriter that ends the connection after left bytes of body.
type short struct {
	http.ResponseWriter
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if len(p) < s.left {
		s.left -= len(p)
		return s.ResponseWriter.Write(p)
	}
	_, _ = s.ResponseWriter.Write(p[:s.left])
	_ = http.NewResponseController(s.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// Unwrap serves http.ResponseController.
func (s *short) Unwrap() http.ResponseWriter { return s.ResponseWriter }
