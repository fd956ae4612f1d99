package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"spindle/internal/clock"
)

// conn is one websocket to a record stream, kept alive by pings: a quiet stream is not a broken one, and one that holds
// the socket open without a sign of life is.
type conn struct {
	keeping
	ws  *websocket.Conn
	buf []byte
	n   atomic.Int64 // messages so far

	stop  context.CancelFunc
	ended sync.WaitGroup
	also  func(func(context.Context)) // runs something beside the reading, until close
}

// keeping says how a conn is kept.
type keeping struct {
	clock clock.Clock
	ping  time.Duration
	most  int64  // bytes of one message
	quiet func() // called with every ping
}

// dialFunc opens the connection below the websocket.
type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// handshakeTimeout bounds how long a host may take to let us in.
const handshakeTimeout = 15 * time.Second

// open opens the websocket. The dialer does not watch ctx while it waits for the host's answer, so the end of ctx closes
// the connection beneath it. A host that refuses in its own words is a *HostError.
func open(ctx context.Context, address string, dial dialFunc) (*websocket.Conn, error) {
	if dial == nil {
		return nil, errors.New("connect: there is no way to dial")
	}
	release := func() bool { return true }
	defer func() { release() }()
	d := websocket.Dialer{HandshakeTimeout: handshakeTimeout, ReadBufferSize: 64 << 10, NetDialContext: func(c context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(c, network, addr)
		if err == nil {
			release = context.AfterFunc(ctx, func() { _ = conn.Close() })
		}
		return conn, err
	}}
	ws, res, err := d.DialContext(ctx, address, http.Header{"User-Agent": {"spindle"}})
	if err == nil {
		return ws, nil
	}
	if res == nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The dialer has kept the beginning of the body and closed it.
	var said struct {
		Error   string `json:"error"`
		Message string `json:"message"`
	}
	if body, rerr := io.ReadAll(io.LimitReader(res.Body, 1<<10)); rerr == nil && json.Unmarshal(body, &said) == nil && said.Error != "" {
		return nil, fmt.Errorf("connect: %w (HTTP %d)", &HostError{Name: said.Error, Message: said.Message}, res.StatusCode)
	}
	return nil, fmt.Errorf("connect: %w (HTTP %d)", err, res.StatusCode)
}

// keep makes a conn of ws and pings until close, or until ctx ends.
func keep(ctx context.Context, ws *websocket.Conn, how keeping) (*conn, error) {
	k := &conn{ws: ws, keeping: how}
	if err := k.extend(); err != nil {
		_ = ws.Close()
		return nil, err
	}
	k.ws.SetPongHandler(func(string) error { return k.extend() })
	k.ws.SetPingHandler(func(data string) error {
		err := ws.WriteControl(websocket.PongMessage, []byte(data), k.clock.Now().Add(5*time.Second))
		var ne net.Error
		if err != nil && !errors.Is(err, websocket.ErrCloseSent) && !(errors.As(err, &ne) && ne.Timeout()) {
			return fmt.Errorf("answer a ping: %w", err)
		}
		return k.extend()
	})
	ctx, k.stop = context.WithCancel(ctx)
	// Closing the connection is the only way to end a read.
	k.ended.Go(func() { k.beat(ctx) })
	k.also = func(f func(context.Context)) { k.ended.Go(func() { f(ctx) }) }
	return k, nil
}

func (k *conn) close() {
	k.stop()
	k.ended.Wait()
}

// extend gives the host three more pings' time.
func (k *conn) extend() error {
	if err := k.ws.NetConn().SetReadDeadline(k.clock.Now().Add(3 * k.ping)); err != nil {
		return fmt.Errorf("set the read deadline: %w", err)
	}
	return nil
}

// beat pings until ctx ends and then closes the connection. Messages are signs of life as well as pongs are; setting a
// deadline for each of them would cost more than reading it.
func (k *conn) beat(ctx context.Context) {
	var before int64
	for k.clock.Sleep(ctx, k.ping) == nil {
		n := k.n.Load()
		if n != before && k.extend() != nil {
			break
		}
		before = n
		if err := k.ws.WriteControl(websocket.PingMessage, nil, k.clock.Now().Add(5*time.Second)); err != nil {
			break
		}
		k.quiet()
	}
	// The other side may be gone; closing is all that is left to do.
	_ = k.ws.WriteControl(websocket.CloseMessage,
		websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), k.clock.Now().Add(time.Second))
	_ = k.ws.Close()
}

// next reads one message into a buffer that the next call uses again. One above the bound, or of another type than
// want, is ErrFrame and has been read to its end: were it to end the connection, the next one would come upon the same
// message again, for ever.
func (k *conn) next(want int) ([]byte, error) {
	kind, r, err := k.ws.NextReader()
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	k.n.Add(1)
	n := 0
	for {
		if n == len(k.buf) {
			k.buf = append(k.buf, make([]byte, max(len(k.buf), 16<<10))...)
		}
		m, err := r.Read(k.buf[n:])
		n += m
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("message broken off: %w", err)
		}
		if int64(n) > k.most {
			if _, err := io.Copy(io.Discard, r); err != nil {
				return nil, fmt.Errorf("message broken off: %w", err)
			}
			k.buf = nil
			return nil, fmt.Errorf("%w: longer than %d bytes", ErrFrame, k.most)
		}
	}
	if int64(n) > k.most || kind != want {
		return nil, fmt.Errorf("%w: too long, or of another type", ErrFrame)
	}
	return k.buf[:n], nil
}
