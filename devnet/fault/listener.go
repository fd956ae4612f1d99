package fault

import (
	"net"
	"sync"
)

// Listener is a net.Listener that knows its open sockets, those that a handler has taken over included.
type Listener struct {
	net.Listener

	mu   sync.Mutex
	open map[*conn]struct{}
}

// NewListener watches over the connections of l.
func NewListener(l net.Listener) *Listener {
	return &Listener{Listener: l, open: map[*conn]struct{}{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &conn{Conn: c, owner: l}
	l.mu.Lock()
	l.open[w] = struct{}{}
	l.mu.Unlock()
	return w, nil
}

// Cut closes every open socket abruptly (a TCP reset where the platform allows) and says how many.
func (l *Listener) Cut() int {
	l.mu.Lock()
	all := make([]*conn, 0, len(l.open))
	for c := range l.open {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		if t, ok := c.Conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
	}
	return len(all)
}

// Open is how many sockets are open.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

type conn struct {
	net.Conn
	owner *Listener
	once  sync.Once
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.owner.mu.Lock()
		delete(c.owner.open, c)
		c.owner.mu.Unlock()
	})
	return c.Conn.Close()
}
