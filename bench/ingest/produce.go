package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// The other process: a host that has a lot to tell. A query of /subscribe says what: n frames, one in ours of them of
// our collections, rate frames a second (0: as fast as they are taken).

// produce serves until standard input ends.
func produce(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Println(l.Addr())
	srv := &http.Server{Handler: http.HandlerFunc(subscribe), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // its end is the end
		_ = srv.Close()
	}()
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func subscribe(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	n, _ := strconv.Atoi(q.Get("n"))
	ours, _ := strconv.Atoi(q.Get("ours"))
	rate, _ := strconv.Atoi(q.Get("rate"))
	ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	defer func() { _ = ws.Close() }()
	if tell(ws, n, max(ours, 1), rate) == nil {
		_, _, _ = ws.ReadMessage() // until the reader has enough
	}
}

// tell writes n frames, each by itself, as hosts of the network do.
func tell(ws *websocket.Conn, n, ours, rate int) error {
	t := newTeller()
	began := time.Now()
	for i := range n {
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
		if err := ws.WriteMessage(websocket.TextMessage, t.frame(i, i%ours == ours-1 || i == n-1)); err != nil {
			return err
		}
	}
	return nil
}

// teller makes frames in the shape and the mixture of the network: posts, likes, follows and profiles of several
// sizes, and some of accounts.
type teller struct {
	others []string // with %T in the place of the time
	out    []byte
	rand   *rand.Rand
}

func newTeller() *teller {
	t := &teller{rand: rand.New(rand.NewPCG(1, 2))}
	for i := range 500 {
		did := fmt.Sprintf("did:plc:%024x", i*7919)
		head := `{"did":"` + did + `","time_us":%T,"kind":`
		commit := func(collection, record string) string {
			return head + `"commit","commit":{"rev":"3mzzzzzzzzz2a","operation":"create","collection":"` + collection +
				`","rkey":"3mzzzzzzzzy2a","record":{"$type":"` + collection + `",` + record +
				`,"createdAt":"2026-09-21T13:33:20.000Z"},"cid":"bafyreidqpc7si3dbimffi64lz3xsx2qt45ip7rpna2qpslcddp23itjjzm"}}`
		}
		subject := `"subject":{"cid":"bafyreidqpc7si3dbimffi64lz3xsx2qt45ip7rpna2qpslcddp23itjjzm","uri":"at://` + did + `/app.bsky.feed.post/3mzzzzzzzzy2a"}`
		switch {
		case i%100 < 4:
			t.others = append(t.others, head+`"identity","identity":{"did":"`+did+`","handle":"someone.example.com","seq":31527015470,"time":"2026-09-21T13:33:20.003Z"}}`)
		case i%100 < 50:
			t.others = append(t.others, commit("app.bsky.feed.like", subject))
		case i%100 < 62:
			t.others = append(t.others, commit("app.bsky.graph.follow", `"subject":"`+did+`"`))
		default:
			text := strings.Repeat(`words and \"words\" of a post, \ud83d\ude00 `, 1+t.rand.IntN(7))
			t.others = append(t.others, commit("app.bsky.feed.post", `"langs":["en"],"text":"`+text+`","reply":{"root":{`+subject+`},"parent":{`+subject+`}}`))
		}
	}
	return t
}

// frame makes frame i, which stands until the next call. One of ours carries the time at which it was told as its key.
func (t *teller) frame(i int, ours bool) []byte {
	now := time.Now()
	t.out = t.out[:0]
	if ours {
		t.out = fmt.Appendf(t.out, `{"did":"did:plc:%024d","time_us":%d,"kind":"commit","commit":{"rev":"3mzzzzzzzzz2a","operation":"create",`+
			`"collection":"org.tangled.track.ticket","rkey":"%d-%d","record":{"$type":"org.tangled.track.ticket","title":"%s"},"cid":"bafyreidqpc7si3dbimffi64lz3xsx2qt45ip7rpna2qpslcddp23itjjzm"}}`,
			i%1000, now.UnixMicro(), now.UnixNano(), i, strings.Repeat("t", 220))
		return t.out
	}
	before, after, _ := strings.Cut(t.others[i%len(t.others)], "%T")
	t.out = append(t.out, before...)
	t.out = strconv.AppendInt(t.out, now.UnixMicro(), 10)
	t.out = append(t.out, after...)
	return t.out
}
