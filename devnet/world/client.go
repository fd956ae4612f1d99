package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/gorilla/websocket"
	cbg "github.com/whyrusleeping/cbor-gen"

	"spindle/devnet"
	"spindle/lexicons/orgtangled"
)

// Client speaks to a spindle over HTTP.
type Client struct {
	base     string
	audience string
	account  *devnet.Account
}

// CallError is an answer that is not a success.
type CallError struct {
	Status  int
	Name    string `json:"error"`
	Message string `json:"message"`
}

// Error implements error.
func (e *CallError) Error() string {
	return fmt.Sprintf("HTTP %d %s: %s", e.Status, e.Name, e.Message)
}

// Ready waits until the spindle answers that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, err := c.Get(ctx, "/_ready")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the spindle: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Get fetches a page.
func (c *Client) Get(ctx context.Context, path string) (string, error) {
	b, err := patiently(ctx, func() ([]byte, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
		if err != nil {
			return nil, fmt.Errorf("ask for %s: %w", path, err)
		}
		return c.do(req)
	})
	return string(b), err
}

// patiently calls f until the answer is not that calls come too fast.
func patiently(ctx context.Context, f func() ([]byte, error)) ([]byte, error) {
	for {
		b, err := f()
		var refused *CallError
		if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests {
			return b, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (c *Client) do(req *http.Request) ([]byte, error) {
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the spindle: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		e := &CallError{Status: res.StatusCode}
		if json.Unmarshal(b, e) != nil {
			e.Message = strings.TrimSpace(string(b))
		}
		return nil, e
	}
	return b, nil
}

// query asks a public question.
func (c *Client) query(ctx context.Context, nsid string, q url.Values, out any) error {
	b, err := c.Get(ctx, "/xrpc/"+nsid+"?"+q.Encode())
	if err != nil {
		return fmt.Errorf("%s: %w", nsid, err)
	}
	if err := json.Unmarshal([]byte(b), out); err != nil {
		return fmt.Errorf("%s: read the answer: %w", nsid, err)
	}
	return nil
}

// Call makes a call in the account's name, with a token for just this call.
func (c *Client) Call(ctx context.Context, nsid string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%s: %w", nsid, err)
	}
	b, err := patiently(ctx, func() ([]byte, error) { return c.post(ctx, nsid, body) })
	if err != nil {
		return fmt.Errorf("%s: %w", nsid, err)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s: read the answer: %w", nsid, err)
	}
	return nil
}

// post sends body with a token of its own.
func (c *Client) post(ctx context.Context, nsid string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/xrpc/"+nsid, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.account != nil {
		token, err := c.account.ServiceToken(c.audience, nsid)
		if err != nil {
			return nil, fmt.Errorf("sign a token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return c.do(req)
}

// PutSecret sets a secret of a repository.
func (c *Client) PutSecret(ctx context.Context, repo, key, value string) error {
	return c.Call(ctx, "org.tangled.ci.putSecret", orgtangled.CiPutSecret_Input{Repo: repo, Key: key, Value: value}, nil)
}

// Approve lets a held pipeline start.
func (c *Client) Approve(ctx context.Context, repo, id string) error {
	return c.Call(ctx, "org.tangled.ci.approvePipeline", orgtangled.CiApprovePipeline_Input{Repo: repo, Pipeline: id}, nil)
}

// Pipelines lists the pipelines of a commit, newest first.
func (c *Client) Pipelines(ctx context.Context, repo, commit string) ([]*orgtangled.CiDefs_Pipeline, error) {
	q := url.Values{"repo": {repo}}
	if commit != "" {
		q.Set("commits", commit)
	}
	var out orgtangled.CiQueryPipelines_Output
	err := c.query(ctx, "org.tangled.ci.queryPipelines", q, &out)
	return out.Pipelines, err
}

// Served waits until the spindle serves a repository.
func (c *Client) Served(ctx context.Context, repo string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := c.query(ctx, "org.tangled.ci.listWorkflowDefinitions", url.Values{"repo": {repo}}, new(orgtangled.CiListWorkflowDefinitions_Output))
		var refused *CallError
		if err == nil || (errors.As(err, &refused) && refused.Name != "RepoNotFound") {
			return nil // a repository without a commit has no definitions yet, and is served all the same
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the spindle serves %s: %w", repo, err)
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// Pipeline is one pipeline.
func (c *Client) Pipeline(ctx context.Context, repo, id string) (*orgtangled.CiDefs_Pipeline, error) {
	var out orgtangled.CiDefs_Pipeline
	err := c.query(ctx, "org.tangled.ci.getPipeline", url.Values{"repo": {repo}, "pipeline": {id}}, &out)
	return &out, err
}

// Await waits until the newest pipeline of a commit satisfies ok.
func (c *Client) Await(ctx context.Context, repo, commit string, ok func(*orgtangled.CiDefs_Pipeline) bool) (*orgtangled.CiDefs_Pipeline, error) {
	last := "none yet"
	for {
		ps, err := c.Pipelines(ctx, repo, commit)
		if err != nil && ctx.Err() == nil {
			var refused *CallError
			if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
				return nil, err
			}
		}
		if len(ps) > 0 {
			last = ps[0].Id + " is " + State(ps[0])
			if ok(ps[0]) {
				return c.Pipeline(ctx, repo, ps[0].Id)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the pipeline of %.7s (%s): %w", commit, last, ctx.Err())
		case <-time.After(75 * time.Millisecond):
		}
	}
}

// State is where a pipeline stands in the server's full vocabulary.
func State(p *orgtangled.CiDefs_Pipeline) string {
	if p.State != nil {
		return *p.State
	}
	return ""
}

// Ended tells whether nothing follows any more.
func Ended(p *orgtangled.CiDefs_Pipeline) bool {
	switch State(p) {
	case "waiting", "held", "preparing", "running", "":
		return false
	}
	return true
}

// Entry is one entry of a log stream: exactly one of the two is set.
type Entry struct {
	Data    *orgtangled.CiSubscribePipelineLogs_Data
	Control *orgtangled.CiSubscribePipelineLogs_Control
}

// Follow hands every entry of a pipeline's logs to f until all of its workflows have ended.
func (c *Client) Follow(ctx context.Context, repo, id string, f func(Entry)) error {
	u := "ws" + strings.TrimPrefix(c.base, "http") + "/xrpc/org.tangled.ci.subscribePipelineLogs?" +
		url.Values{"repo": {repo}, "pipeline": {id}}.Encode()
	conn, res, err := websocket.DefaultDialer.DialContext(ctx, u, nil)
	if err != nil {
		if res != nil {
			return fmt.Errorf("follow the logs of %s: %w (HTTP %d)", id, err, res.StatusCode)
		}
		return fmt.Errorf("follow the logs of %s: %w", id, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	for {
		_, b, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow the logs of %s: %w", id, err)
		}
		e, err := frame(b)
		if err != nil {
			return fmt.Errorf("follow the logs of %s: %w", id, err)
		}
		f(e)
	}
}

// frame reads a message of a stream: two CBOR objects, of which the first names the kind of the second
// (https://atproto.com/specs/event-stream#framing).
func frame(b []byte) (Entry, error) {
	r := bytes.NewReader(b)
	var raw cbg.Deferred
	if err := raw.UnmarshalCBOR(r); err != nil {
		return Entry{}, fmt.Errorf("read a frame: %w", err)
	}
	header, err := atdata.UnmarshalCBOR(raw.Raw)
	if err != nil {
		return Entry{}, fmt.Errorf("read the header of a frame: %w", err)
	}
	var e Entry
	switch kind := header["t"]; kind {
	case "#data":
		e.Data = new(orgtangled.CiSubscribePipelineLogs_Data)
		err = e.Data.UnmarshalCBOR(r)
	case "#control":
		e.Control = new(orgtangled.CiSubscribePipelineLogs_Control)
		err = e.Control.UnmarshalCBOR(r)
	default:
		err = fmt.Errorf("unknown kind %v", kind)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read a frame: %w", err)
	}
	return e, nil
}

// NewClient speaks to the spindle of this host name at base in a's name; nil is nobody.
func NewClient(base, hostname string, a *devnet.Account) *Client {
	return &Client{base: base, audience: "did:web:" + hostname + "#tangled_spindle", account: a}
}
