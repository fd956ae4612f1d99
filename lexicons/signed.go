package lexicons

import (
	"fmt"

	"github.com/bluesky-social/indigo/atproto/atdata"
)

// Unsigned is the DAG-CBOR that the signature of an org.tangled.git.pushEvent message is over: the message without
// seq, which every server of a stream gives anew, and without sig. Errors: those of reading DAG-CBOR, and ErrInvalid
// for a message without a signature.
func Unsigned(message []byte) (signed, signature []byte, err error) {
	m, err := parse(message)
	if err != nil {
		return nil, nil, err
	}
	sig, ok := m["sig"].(atdata.Bytes)
	if !ok || len(sig) == 0 {
		return nil, nil, fmt.Errorf("%w: the message is not signed", ErrInvalid)
	}
	delete(m, "sig")
	delete(m, "seq")
	signed, err = atdata.MarshalCBOR(m)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return signed, sig, nil
}

// Fields reads one DAG-CBOR object, bounded, as plain values. Errors: those of reading DAG-CBOR.
func Fields(raw []byte) (map[string]any, error) { return parse(raw) }
