package knot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/auth"
	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/devnet/pds"
)

const (
	notifyNSID = "org.tangled.event.notifyEvent"
	pushNSID   = "org.tangled.event.push"
	// tokenTTL is the life of a service token, as the specification suggests.
	tokenTTL = 60 * time.Second
	// callTimeout bounds one call; a push waits for the first one.
	callTimeout = 5 * time.Second
	firstWait   = 50 * time.Millisecond
	lastWait    = 2 * time.Second
	maxReply    = 1 << 20 // bytes of a spindle's answer
	maxPending  = 10_000
)

// Push is one ref that moved.
type Push struct {
	Repo           syntax.DID
	Ref            string
	OldSHA, NewSHA string
	Actor          syntax.DID
	Options        []string
}

// Answer is what a spindle said.
type Answer struct {
	Status    int
	Error     string   // name of the XRPC error, if it is one
	Message   string   // text for the pusher
	Pipelines []string // ids
}

// settled says that the spindle took the notice, or refused it for good.
func (a Answer) settled() bool {
	return a.Status/100 == 2 || a.Status/100 == 4 && a.Status != http.StatusTooManyRequests
}

// notifier calls spindles.
type notifier struct {
	records *pds.Host
	spindle func(string) (string, bool)
	log     *slog.Logger
	client  *http.Client
	spawn   func(func(context.Context)) // a goroutine whose context ends with close
	cancel  context.CancelFunc
	group   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	faults  Faults
	held    []Push
	pending int
	changed chan struct{} // closed and replaced when a retry may go better
}

func newNotifier(c Config) *notifier {
	n := &notifier{
		records: c.Records, spindle: c.Spindle, log: c.Log, changed: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConnsPerHost: 4}, Timeout: callTimeout},
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.spawn = func(f func(context.Context)) { n.group.Go(func() { f(ctx) }) }
	return n
}

func (n *notifier) close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.cancel()
	n.group.Wait()
	n.client.CloseIdleConnections()
}

// tell makes the first call for p and returns the text for the pusher. What is not settled goes on in the
// background.
func (n *notifier) tell(ctx context.Context, p Push) string {
	name := n.chosen(p.Repo)
	if name == "" {
		return ""
	}
	f, keep := n.fault(p)
	if !keep {
		return ""
	}
	if f.Delay > 0 {
		n.later(p, f.Delay)
		return ""
	}
	a, err := n.deliver(ctx, p, f)
	if err == nil && a.settled() {
		return forPusher(name, a)
	}
	n.later(p, firstWait)
	return "spindle " + printable(name) + " cannot be reached now; it will be told of this push as soon as it can be\n"
}

// deliver calls the spindle of p's repository, as often as the faults want.
func (n *notifier) deliver(ctx context.Context, p Push, f Faults) (Answer, error) {
	name := n.chosen(p.Repo)
	base, ok := n.spindle(name)
	if !ok {
		return Answer{}, fmt.Errorf("knot: nobody knows where the spindle %q is", name)
	}
	key, err := n.key(p.Repo, f.BadSignature)
	if err != nil {
		return Answer{}, err
	}
	call := Call{URL: base, Issuer: p.Repo, Key: key, Audience: audience(name), Push: p}
	a, err := n.call(ctx, call)
	for range f.Duplicate {
		// The second answer is nobody's concern; the first one is shown.
		_, _ = n.call(ctx, call)
	}
	return a, err
}

func (n *notifier) key(repo syntax.DID, wrong bool) (atcrypto.PrivateKey, error) {
	if wrong {
		return atcrypto.GeneratePrivateKeyK256()
	}
	r, err := n.records.Repo(repo)
	if err != nil {
		return nil, err
	}
	return r.Key(), nil
}

// chosen reads the host name of the spindle from the manifest; empty: none.
func (n *notifier) chosen(repo syntax.DID) string {
	r, err := n.records.Repo(repo)
	if err != nil {
		return ""
	}
	rec, err := r.Get(manifestNSID, manifestRkey)
	if err != nil {
		return ""
	}
	text, err := rec.JSON()
	if err != nil {
		return ""
	}
	var m struct {
		Spindle string `json:"spindle"`
	}
	if json.Unmarshal(text, &m) != nil {
		return ""
	}
	// did:web writes the colon before a port as %3A (https://w3c-ccg.github.io/did-method-web/).
	host := strings.TrimPrefix(m.Spindle, "did:web:")
	return strings.ReplaceAll(strings.ReplaceAll(host, "%3A", ":"), "%3a", ":")
}

// audience is the service reference of the spindle at host.
func audience(host string) string {
	return "did:web:" + strings.ReplaceAll(host, ":", "%3A") + "#tangled_spindle"
}

// later tries p again after wait, and with growing waits until it is settled.
func (n *notifier) later(p Push, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || n.pending == maxPending {
		n.log.Warn("a notice is given up", "repo", p.Repo, "ref", p.Ref)
		return
	}
	n.pending++
	n.spawn(func(ctx context.Context) {
		n.retry(ctx, p, wait)
		n.mu.Lock()
		n.pending--
		n.mu.Unlock()
	})
}

func (n *notifier) retry(ctx context.Context, p Push, wait time.Duration) {
	for {
		n.mu.Lock()
		f, changed := n.faults, n.changed
		n.mu.Unlock()
		// The spindle is across a real socket, so these waits are real time, with a fifth of jitter.
		t := time.NewTimer(wait + time.Duration(rand.Int64N(int64(wait)/5+1)))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-changed:
			t.Stop()
		case <-t.C:
		}
		a, err := n.deliver(ctx, p, f)
		if err == nil && a.settled() {
			return
		}
		n.log.Debug("a spindle did not take a notice", "repo", p.Repo, "status", a.Status, "err", err)
		wait = min(max(wait, firstWait)*2, lastWait)
	}
}

// wake makes every waiting retry happen now.
func (n *notifier) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Call is one org.tangled.event.notifyEvent, true or forged.
type Call struct {
	URL      string              // base URL of the spindle
	Issuer   syntax.DID          // iss of the token
	Key      atcrypto.PrivateKey // signs the token
	Audience string              // aud of the token
	Method   string              // lxm of the token; empty means the right one
	TTL      time.Duration       // zero means 60 s
	Push     Push
}

// call sends c and reads the answer. The error is for answers that did not come.
func (n *notifier) call(ctx context.Context, c Call) (Answer, error) {
	if c.Method == "" {
		c.Method = notifyNSID
	}
	if c.TTL == 0 {
		c.TTL = tokenTTL
	}
	lxm := syntax.NSID(c.Method)
	token, err := auth.SignServiceAuth(c.Issuer, c.Audience, c.TTL, &lxm, c.Key)
	if err != nil {
		return Answer{}, fmt.Errorf("sign a service token: %w", err)
	}
	event := map[string]any{
		"$type": pushNSID, "repo": c.Push.Repo.String(), "ref": c.Push.Ref,
		"oldSha": c.Push.OldSHA, "newSha": c.Push.NewSHA,
	}
	if c.Push.Actor != "" {
		event["actor"] = c.Push.Actor.String()
	}
	if len(c.Push.Options) > 0 {
		event["pushOptions"] = c.Push.Options
	}
	body, err := json.Marshal(map[string]any{"repo": c.Push.Repo.String(), "event": event})
	if err != nil {
		return Answer{}, fmt.Errorf("encode a notice: %w", err)
	}
	url := strings.TrimSuffix(c.URL, "/") + "/xrpc/" + notifyNSID
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: %w", url, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := n.client.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("call %s: %w", url, err)
	}
	defer func() { _ = res.Body.Close() }()
	return readAnswer(res)
}

func readAnswer(res *http.Response) (Answer, error) {
	b, err := io.ReadAll(io.LimitReader(res.Body, maxReply+1))
	if err != nil {
		return Answer{}, fmt.Errorf("read the spindle's answer: %w", err)
	}
	a := Answer{Status: res.StatusCode}
	if len(b) > maxReply {
		return a, errors.New("knot: the spindle's answer is too long")
	}
	var out struct {
		Error     string   `json:"error"`
		Message   string   `json:"message"`
		Pipelines []string `json:"pipelines"`
	}
	// An answer that is no JSON is still an acknowledgement or a refusal, by its status.
	if json.Unmarshal(b, &out) == nil {
		a.Error, a.Message, a.Pipelines = out.Error, out.Message, out.Pipelines
	}
	return a, nil
}

// forPusher is the text that git shows as "remote: ..." lines.
func forPusher(name string, a Answer) string {
	text := a.Message
	if a.Status/100 == 4 {
		text = fmt.Sprintf("spindle %s refused this push: %s %s", name, a.Error, a.Message)
	}
	if text == "" {
		return ""
	}
	return strings.TrimRight(printable(text), "\n") + "\n"
}

// printable keeps terminal codes of the spindle away from the pusher's terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r != 0x7f && (r < 0x80 || r > 0x9f) {
			return r
		}
		return -1
	}, s)
}
