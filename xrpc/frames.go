package xrpc

import (
	"bytes"

	"github.com/bluesky-social/indigo/atproto/atdata"
	cbg "github.com/whyrusleeping/cbor-gen"
)

// messageFrame is one message of an event stream: a header that names its type, and the body
// (https://atproto.com/specs/event-stream).
func messageFrame(kind string, body cbg.CBORMarshaler) ([]byte, error) {
	head, err := atdata.MarshalCBOR(map[string]any{"op": int64(1), "t": kind})
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(head)
	if err := body.MarshalCBOR(buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// errorFrame is the last message of an event stream that failed.
func errorFrame(e *Error) ([]byte, error) {
	head, err := atdata.MarshalCBOR(map[string]any{"op": int64(-1)})
	if err != nil {
		return nil, err
	}
	body, err := atdata.MarshalCBOR(map[string]any{"error": string(e.Code), "message": e.Message})
	if err != nil {
		return nil, err
	}
	return append(head, body...), nil
}
