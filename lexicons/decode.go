package lexicons

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/bluesky-social/indigo/atproto/lexicon"
	cbg "github.com/whyrusleeping/cbor-gen"
)

// Decode gives a typed view of a record: Decode[orgtangled.RepoManifest](r). The view loses the fields that
// T does not have; r keeps them. It does not check lengths, formats and required fields: Record.Validate does.
func Decode[T any, P interface {
	*T
	cbg.CBORUnmarshaler
}](r Record) (*T, error) {
	if want := typeOf(reflect.TypeFor[T]()); want != r.typ {
		return nil, fmt.Errorf("%w: the record is %q, the view is of %q", ErrWrongType, r.typ, want)
	}
	v := new(T)
	if err := P(v).UnmarshalCBOR(bytes.NewReader(r.raw)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrMalformed, r.typ, err)
	}
	if err := checkUnions(reflect.ValueOf(v), r.typ); err != nil {
		return nil, err
	}
	return v, nil
}

// DecodeJSON gives a typed view of JSON, such as the answer of a call: DecodeJSON[orgtangled.CiDefs_Pipeline](b).
// A union with a member that is not known here is refused with ErrUnknownMember.
func DecodeJSON[T any](b []byte) (*T, error) {
	if _, err := parseJSON(b); err != nil {
		return nil, err
	}
	return viewJSON[T](b)
}

// DecodeInput gives a typed view of the body of a call of nsid, a procedure of cat, and refuses with
// ErrInvalid what its lexicon does not allow. It is looked at in this order: the data model, the lexicon,
// the unions.
func DecodeInput[T any](cat lexicon.Catalog, nsid string, body []byte) (*T, error) {
	data, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	def, err := cat.Resolve(nsid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	proc, ok := def.Def.(lexicon.SchemaProcedure)
	if !ok || proc.Input == nil || proc.Input.Schema == nil {
		return nil, fmt.Errorf("%w: %s takes no body", ErrInvalid, nsid)
	}
	obj, ok := proc.Input.Schema.Inner.(lexicon.SchemaObject)
	if !ok {
		return nil, fmt.Errorf("%w: the body of %s is not an object", ErrInvalid, nsid)
	}
	if err := validateObject(cat, nsid, obj, data); err != nil {
		return nil, err
	}
	v, err := viewJSON[T](body)
	if err != nil {
		return nil, err
	}
	// encoding/json also fills a field from a key that differs in case only, and from the last of two equal
	// keys, which the data above need not hold. So the view is held against the lexicon itself.
	if err := validateView(cat, nsid, obj, v); err != nil {
		return nil, err
	}
	return v, nil
}

// validateView checks what a caller of DecodeInput is about to get.
func validateView(cat lexicon.Catalog, nsid string, obj lexicon.SchemaObject, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	data, err := parseJSON(b)
	if err != nil {
		return err
	}
	return validateObject(cat, nsid, obj, data)
}

// viewJSON decodes JSON that is known to be bounded and of the data model.
func viewJSON[T any](b []byte) (*T, error) {
	v := new(T)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if err := checkUnions(reflect.ValueOf(v), ""); err != nil {
		return nil, err
	}
	return v, nil
}

// typeOf is the $type that a generated type stands for, or "" for one that has none.
func typeOf(t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	f, ok := t.FieldByName("LexiconTypeID")
	if !ok {
		return ""
	}
	for part := range strings.SplitSeq(f.Tag.Get("cborgen"), ",") {
		if c, ok := strings.CutPrefix(part, "const="); ok {
			return c
		}
	}
	return ""
}

// checkUnions finds a union without a member in a decoded view. Generated code decodes an unknown member
// to that, and fails only when it encodes it again. path names the place for the error.
func checkUnions(v reflect.Value, path string) error {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return checkUnions(v.Elem(), path)
	case reflect.Slice:
		if k := v.Type().Elem().Kind(); k != reflect.Pointer && k != reflect.Struct {
			return nil
		}
		for i := range v.Len() {
			if err := checkUnions(v.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		return checkStruct(v, path)
	}
	return nil
}

// checkStruct is checkUnions of one struct.
func checkStruct(v reflect.Value, path string) error {
	t := v.Type()
	union, empty := t.NumField() > 0, true
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			return nil // a type of a library, such as a CID: no union inside
		}
		union = union && f.Tag == "" && f.Type.Kind() == reflect.Pointer
		empty = empty && v.Field(i).IsZero()
	}
	if union && empty {
		return fmt.Errorf("%w at %s", ErrUnknownMember, strings.TrimPrefix(path, "."))
	}
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("json")
		if name, _, _ = strings.Cut(name, ","); name != "" {
			name = "." + name
		}
		if err := checkUnions(v.Field(i), path+name); err != nil {
			return err
		}
	}
	return nil
}
