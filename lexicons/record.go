package lexicons

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/lexicon"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// What a record or a body is refused with. Messages that wrap these never hold more than a short part of the input.
var (
	// ErrTooBig: larger than the data model allows (1 MiB of DAG-CBOR, 2 MiB of JSON).
	ErrTooBig = errors.New("lexicons: too big")
	// ErrTooDeep: nested deeper than the data model allows (32 levels).
	ErrTooDeep = errors.New("lexicons: nested too deeply")
	// ErrMalformed: not the data model, or not what the view needs.
	ErrMalformed = errors.New("lexicons: malformed")
	// ErrNotCanonical: DAG-CBOR, but not in the one form that the data model has for it.
	ErrNotCanonical = errors.New("lexicons: not canonical DAG-CBOR")
	// ErrNoType: a record without a $type that is an NSID.
	ErrNoType = errors.New("lexicons: no $type")
	// ErrWrongType: a view was asked for that is not of the record's $type.
	ErrWrongType = errors.New("lexicons: another $type")
	// ErrUnknownMember: a union holds a member that is not known here.
	ErrUnknownMember = errors.New("lexicons: unknown member of a union")
	// ErrInvalid: well-formed, but against the lexicon.
	ErrInvalid = errors.New("lexicons: invalid")
)

// Record is one record as it was signed. The zero Record is not one; use FromCBOR or FromJSON. A Record
// never changes and may be used by many goroutines.
type Record struct {
	typ string
	cid cid.Cid
	raw []byte
}

// FromCBOR takes a record as DAG-CBOR, such as a block of a repository (https://atproto.com/specs/data-model).
func FromCBOR(raw []byte) (Record, error) {
	data, err := parse(raw)
	if err != nil {
		return Record{}, err
	}
	typ, _ := data["$type"].(string)
	if _, err := syntax.ParseNSID(typ); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrNoType, err)
	}
	c, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(raw)
	if err != nil {
		return Record{}, fmt.Errorf("sum a record: %w", err)
	}
	return Record{typ: typ, cid: c, raw: bytes.Clone(raw)}, nil
}

// FromJSON takes a record as data-model JSON. The CID is that of its canonical DAG-CBOR, which is that of
// the signed record only if the JSON tells all of it.
func FromJSON(b []byte) (Record, error) {
	data, err := parseJSON(b)
	if err != nil {
		return Record{}, err
	}
	raw, err := atdata.MarshalCBOR(data)
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return FromCBOR(raw)
}

// Type is the record's $type, a valid NSID.
func (r Record) Type() string { return r.typ }

// CID is the content id of Bytes: CIDv1, dag-cbor, SHA-256.
func (r Record) CID() cid.Cid { return r.cid }

// Bytes is a copy of the record's DAG-CBOR.
func (r Record) Bytes() []byte { return bytes.Clone(r.raw) }

// Data is the record as generic data-model values, every field of it.
func (r Record) Data() (map[string]any, error) { return parse(r.raw) }

// Validate tells whether the record obeys the lexicon of its $type. Unknown fields and unknown members of
// open unions are no fault. The error is ErrInvalid, also when cat does not have the lexicon.
func (r Record) Validate(cat lexicon.Catalog) error {
	data, err := parse(r.raw)
	if err != nil {
		return err
	}
	if err := lexicon.ValidateRecord(cat, data, r.typ, 0); err != nil {
		return fmt.Errorf("%w %s: %w", ErrInvalid, r.typ, err)
	}
	return nil
}

// parse reads DAG-CBOR, bounded, and refuses any second form of the same data.
func parse(raw []byte) (map[string]any, error) {
	if err := scan(raw); err != nil {
		return nil, err
	}
	data, err := atdata.UnmarshalCBOR(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	again, err := atdata.MarshalCBOR(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !bytes.Equal(raw, again) {
		return nil, ErrNotCanonical
	}
	return data, nil
}

// parseJSON reads data-model JSON, bounded.
func parseJSON(b []byte) (map[string]any, error) {
	if len(b) > atdata.MAX_JSON_RECORD_SIZE {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooBig, len(b))
	}
	// encoding/json puts U+FFFD in the place of such bytes, which would change a value without a word.
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	if !bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return nil, fmt.Errorf("%w: not an object", ErrMalformed)
	}
	data, err := atdata.UnmarshalJSON(b)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return data, nil
}
