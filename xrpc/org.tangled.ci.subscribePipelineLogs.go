package xrpc

import (
	"context"
	"net/http"

	"github.com/gorilla/websocket"

	"spindle/lexicons"
	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
)

// subscribeLogsNSID is the method that streams logs.
const subscribeLogsNSID = "org.tangled.ci.subscribePipelineLogs"

// subscription is what a subscriber to logs asked for.
type subscription struct {
	id    pipeline.ID
	names []string
	from  int64
}

// subscribePipelineLogs streams the logs of a pipeline as binary frames, until every workflow that was asked
// for has ended.
func (s *Server) subscribePipelineLogs() http.HandlerFunc {
	onError := func(e *Error) (int, []byte, error) {
		b, err := errorFrame(e)
		return websocket.BinaryMessage, b, err
	}
	return serveStream(s, subscribeLogsNSID, s.admitLogs, func(ctx context.Context, st *stream, sub subscription) error {
		return s.follow(ctx, sub.id, sub.names, sub.from, func(n numbered) error {
			b, err := logFrame(n)
			if err != nil {
				return err
			}
			return st.send(websocket.BinaryMessage, b)
		})
	}, onError)
}

// admitLogs checks what a subscriber asks for.
func (s *Server) admitLogs(r *http.Request) (subscription, error) {
	p, err := lexicons.ParseParams(s.catalog, subscribeLogsNSID, r.URL.Query())
	if err != nil {
		return subscription{}, malformed(err)
	}
	pl, err := s.pipelineOf(r.Context(), p.String("repo"), p.String("pipeline"))
	if err != nil {
		return subscription{}, err
	}
	ws, err := selected(pl, p.Strings("workflows"))
	if err != nil {
		return subscription{}, err
	}
	sub := subscription{id: pl.ID, from: p.Int("cursor")}
	for _, w := range ws {
		sub.names = append(sub.names, w.Name)
	}
	if sub.from > 0 && len(sub.names) != 1 {
		return subscription{}, refuse(InvalidRequest, "a cursor needs exactly one workflow")
	}
	return sub, nil
}

// logFrame is one line as a message.
func logFrame(n numbered) ([]byte, error) {
	l := n.line
	if l.Kind != lineControl {
		v := &orgtangled.CiSubscribePipelineLogs_Data{
			Time: timestamp(l.Time), Workflow: n.workflow, Step: int64(l.StepID), Content: l.Content, Stream: l.Stream, Line: &n.number,
		}
		if v.Stream == "" {
			v.Stream = "stdout"
		}
		return messageFrame("#data", v)
	}
	v := &orgtangled.CiSubscribePipelineLogs_Control{
		Time: timestamp(l.Time), Workflow: n.workflow, Step: int64(l.StepID), Content: l.Content, Line: &n.number,
		Command: opt(l.StepCommand), Status: opt(l.StepStatus), Kind: opt(l.StepKind),
	}
	if l.StepStatus == stepEnd {
		if l.StepOutcome != "" {
			v.Outcome = opt(l.StepOutcome.Wire())
		}
		if l.ExitCode != nil {
			v.ExitCode = optInt(*l.ExitCode)
		}
	}
	return messageFrame("#control", v)
}
