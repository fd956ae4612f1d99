package netguard

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// ProxyConfig shapes a Proxy.
type ProxyConfig struct {
	// MaxBytes bounds what one connection may bring in. Zero is 4 GiB.
	MaxBytes int64
	// Idle ends a tunnel over which nothing has come for this long. Zero is 60 s.
	Idle time.Duration
}

// Proxy is an HTTP proxy on a loopback port whose far side is the guard's dialer: CONNECT always,
// absolute http URLs in development. Each process draws a credential of its own, so that other users of
// the machine cannot borrow the way out.
type Proxy struct {
	guard    *Guard
	cfg      ProxyConfig
	listener net.Listener
	server   *http.Server
	secret   string
	plain    *httputil.ReverseProxy
	tunnels  sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{}
}

// NewProxy listens on 127.0.0.1 and serves until Close.
func (g *Guard) NewProxy(c ProxyConfig) (*Proxy, error) {
	if c.MaxBytes == 0 {
		c.MaxBytes = 4 << 30
	}
	if c.Idle == 0 {
		c.Idle = time.Minute
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("netguard: listen for the proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{guard: g, cfg: c, listener: ln, secret: rand.Text(), ctx: ctx, cancel: cancel, done: make(chan struct{})}
	p.plain = &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     g.HTTPClient(ClientOptions{Timeout: -1}).Transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
		// What goes wrong is told to the client by its status; there is nobody else to tell.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	p.server = &http.Server{
		Handler:           p,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       c.Idle,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	go func() {
		defer close(p.done)
		// Serve always ends with an error; after Close it is ErrServerClosed, and before Close the next
		// user of the proxy meets a refused connection and says so.
		_ = p.server.Serve(ln)
	}()
	return p, nil
}

// URL is the proxy's address with its credential in the user part. It is a secret: it belongs into a
// child's environment, not onto its command line and not into logs.
func (p *Proxy) URL() *url.URL {
	return &url.URL{Scheme: "http", User: url.UserPassword("spindle", p.secret), Host: p.listener.Addr().String()}
}

// Close stops listening, cuts what is open and waits for it.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.server.Close()
	<-p.done
	p.tunnels.Wait()
	return err
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte("spindle:"+p.secret))
	if subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) != 1 {
		w.Header().Set("Proxy-Authenticate", `Basic realm="spindle"`)
		http.Error(w, "proxy credential required", http.StatusProxyAuthRequired)
		return
	}
	switch {
	case r.Method == http.MethodConnect:
		p.connect(w, r)
	case r.URL.IsAbs() && p.guard.dev && r.URL.Scheme == "http":
		p.plain.ServeHTTP(w, r)
	default:
		refuse(w, p.guard.deny("scheme", "plain http through the proxy"))
	}
}

// refuse answers 403 for what the guard refused, which stays refused, and 502 for what may work later.
func refuse(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrDenied) {
		http.Error(w, "refused by the network guard", http.StatusForbidden)
		return
	}
	http.Error(w, "host not reached", http.StatusBadGateway)
}

func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	p.tunnels.Add(1)
	defer p.tunnels.Done()
	far, err := p.guard.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		refuse(w, err)
		return
	}
	defer func() { _ = far.Close() }()
	near, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, "connection cannot be taken over", http.StatusInternalServerError)
		return
	}
	defer func() { _ = near.Close() }()
	if err := near.SetDeadline(time.Time{}); err != nil {
		return
	}
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		return
	}
	stop := context.AfterFunc(p.ctx, func() { _ = near.Close(); _ = far.Close() })
	defer stop()
	up := make(chan struct{})
	go func() {
		defer close(up)
		pump(far, buffered, near, p.cfg.MaxBytes, p.cfg.Idle)
		_ = far.Close()
	}()
	pump(near, far, far, p.cfg.MaxBytes, p.cfg.Idle)
	_ = near.Close()
	<-up
}

// pump copies from src to dst until an end, an error, limit bytes or an idle time; from is the connection
// whose read deadline src obeys.
func pump(dst io.Writer, src io.Reader, from net.Conn, limit int64, idle time.Duration) {
	buf := make([]byte, 32<<10)
	for limit > 0 {
		if err := from.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return
		}
		n, err := src.Read(buf)
		if n > 0 {
			limit -= int64(n)
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
