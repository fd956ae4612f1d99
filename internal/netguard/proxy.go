package netguard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

const (
	proxyTunnels  = 64              // tunnels open at once
	tunnelIdle    = 2 * time.Minute // no byte either way for this long closes a tunnel
	proxyUser     = "spindle"       // the secret is the password
	headerTimeout = 10 * time.Second
)

// Proxy is an HTTP proxy on loopback for programs that dial for themselves (git). Its only way out is the
// guard it was made from. Close it.
type Proxy struct {
	g     *Guard
	url   *url.URL
	pass  string
	plain http.Handler
	srv   *http.Server
	slots chan struct{}
	stop  func() bool // undoes the watch on the context
	done  chan struct{}

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup // requests and tunnels
	once   sync.Once
}

// StartProxy listens on a free port of 127.0.0.1 and serves until Close, or until ctx ends.
func (g *Guard) StartProxy(ctx context.Context) (*Proxy, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netguard: listen for proxy: %w", err)
	}
	p := &Proxy{
		g:     g,
		pass:  rand.Text(),
		slots: make(chan struct{}, proxyTunnels),
		done:  make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	p.url = &url.URL{Scheme: "http", User: url.UserPassword(proxyUser, p.pass), Host: l.Addr().String()}
	quiet := log.New(io.Discard, "", 0) // a client that hangs up is no news, and errors may quote URLs
	p.plain = &httputil.ReverseProxy{
		Rewrite:      func(*httputil.ProxyRequest) {}, // the absolute URI already names the target
		Transport:    &transport{g: g, next: g.transport(proxyTunnels)},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
		ErrorLog:     quiet,
	}
	p.srv = &http.Server{
		Handler:           http.HandlerFunc(p.serve),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       tunnelIdle,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          quiet,
	}
	go func() {
		defer close(p.done)
		_ = p.srv.Serve(l) // ends with ErrServerClosed, or because the listener is gone: closed either way
	}()
	p.stop = context.AfterFunc(ctx, p.shut)
	return p, nil
}

// URL is the proxy's address with its credential, for http.proxy or https_proxy. It is a secret: put it
// into the environment of one process, not into arguments or logs.
func (p *Proxy) URL() string { return p.url.String() }

// Close ends every tunnel, waits for all goroutines of the proxy and frees its port. It is idempotent.
func (p *Proxy) Close() error {
	p.stop()
	p.shut()
	<-p.done
	p.wg.Wait()
	return nil
}

func (p *Proxy) shut() {
	p.once.Do(func() {
		_ = p.srv.Close() // the listener's error on closing changes nothing for the caller
		p.plain.(*httputil.ReverseProxy).Transport.(*transport).CloseIdleConnections()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.closed = true
		for c := range p.conns {
			_ = c.Close()
		}
	})
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	if !p.authorized(r) {
		_ = p.g.deny(ReasonProxy, r.RemoteAddr) // counted; the client gets the status
		w.Header().Set("Proxy-Authenticate", `Basic realm="spindle"`)
		http.Error(w, "proxy credential required", http.StatusProxyAuthRequired)
		return
	}
	if !p.enter() {
		return
	}
	defer p.wg.Done()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		http.Error(w, "too many connections", http.StatusServiceUnavailable)
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.URL.IsAbs():
		p.plain.ServeHTTP(w, r)
	default:
		http.Error(w, "this is a proxy", http.StatusBadRequest)
	}
}

func (p *Proxy) authorized(r *http.Request) bool {
	// Proxy-Authorization has the form of Authorization (RFC 9110, 11.7.2), so its parser is borrowed.
	auth := http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, pass, ok := auth.BasicAuth()
	return ok && user == proxyUser && subtle.ConstantTimeCompare([]byte(pass), []byte(p.pass)) == 1
}

// tunnel connects the caller with the host it names. It returns when both directions have ended.
func (p *Proxy) tunnel(w http.ResponseWriter, r *http.Request) {
	out, err := p.g.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		refuse(w, err)
		return
	}
	in, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		_ = out.Close()
		http.Error(w, "cannot tunnel", http.StatusInternalServerError)
		return
	}
	defer p.forget(in)
	defer p.forget(out)
	if !p.remember(in, out) {
		return
	}
	if _, err := io.WriteString(in, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	splice(in, buf.Reader, out)
}

// splice copies both ways until both ends are done or the tunnel is idle.
func splice(in net.Conn, fromIn io.Reader, out net.Conn) {
	touch := func() {
		t := time.Now().Add(tunnelIdle)
		_ = in.SetDeadline(t) // fails only on a closed connection, which the copy reports
		_ = out.SetDeadline(t)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		forward(out, fromIn, touch)
	}()
	forward(in, out, touch)
	<-done
}

// forward copies src to dst and then tells dst that no more will come, so that the other direction can
// still finish.
func forward(dst net.Conn, src io.Reader, touch func()) {
	buf := make([]byte, 32<<10)
	for {
		touch()
		n, err := src.Read(buf)
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err == nil {
			continue
		}
		if half, ok := dst.(interface{ CloseWrite() error }); ok && err == io.EOF {
			_ = half.CloseWrite() // a peer that has gone already needs no notice
			return
		}
		_ = dst.Close()
		return
	}
}

// enter counts a request in, unless the proxy is closing. The caller calls p.wg.Done.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.wg.Add(1)
	}
	return !p.closed
}

func (p *Proxy) remember(cs ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for _, c := range cs {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	_ = c.Close() // the tunnel is over either way
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// refuse answers 403 for what the guard denied and 502 for what failed, with no detail of our network.
func refuse(w http.ResponseWriter, err error) {
	if reason := reasonOf(err); reason != "" {
		http.Error(w, "denied: "+reason, http.StatusForbidden)
		return
	}
	http.Error(w, "cannot reach host", http.StatusBadGateway)
}
