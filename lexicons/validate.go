package lexicons

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"

	"github.com/bluesky-social/indigo/atproto/lexicon"
)

// Params are the parameters of a query or a subscription, of the types that the lexicon gives them:
// string, int64, bool, or []any of one of these. Defaults are filled in.
type Params map[string]any

// String is the string parameter of this name, or "".
func (p Params) String(name string) string { s, _ := p[name].(string); return s }

// Int is the integer parameter of this name, or 0.
func (p Params) Int(name string) int64 { n, _ := p[name].(int64); return n }

// Strings is the repeated string parameter of this name.
func (p Params) Strings(name string) []string {
	list, _ := p[name].([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// ParseParams reads the parameters of a call of nsid, a query or subscription of cat, and refuses with
// ErrInvalid what its lexicon does not allow. Parameters that the lexicon does not have are left out.
func ParseParams(cat lexicon.Catalog, nsid string, q url.Values) (Params, error) {
	def, err := cat.Resolve(nsid)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	var schema *lexicon.SchemaParams
	switch d := def.Def.(type) {
	case lexicon.SchemaQuery:
		schema = d.Parameters
	case lexicon.SchemaSubscription:
		schema = d.Parameters
	default:
		return nil, fmt.Errorf("%w: %s takes no parameters", ErrInvalid, nsid)
	}
	out := make(Params)
	if schema == nil {
		return out, nil
	}
	for name, prop := range schema.Properties {
		v, err := param(prop.Inner, q[name])
		if err != nil {
			return nil, fmt.Errorf("%w %s: %s: %w", ErrInvalid, nsid, name, err)
		}
		if v != nil {
			out[name] = v
		}
	}
	obj := lexicon.SchemaObject{Type: "object", Required: schema.Required, Properties: schema.Properties}
	return out, validateObject(cat, nsid, obj, out)
}

var (
	errRepeated  = errors.New("given more than once")
	errNotNumber = errors.New("not an integer")
	errNotBool   = errors.New("neither true nor false")
	errParamType = errors.New("of a type that a parameter cannot have")
)

// param gives the values of one parameter the type that its schema says; nil when it is absent.
func param(schema any, values []string) (any, error) {
	if arr, ok := schema.(lexicon.SchemaArray); ok {
		if len(values) == 0 {
			return nil, nil
		}
		list := make([]any, len(values))
		for i, s := range values {
			v, err := param(arr.Items.Inner, []string{s})
			if err != nil {
				return nil, err
			}
			list[i] = v
		}
		return list, nil
	}
	if len(values) > 1 {
		return nil, errRepeated
	}
	switch s := schema.(type) {
	case lexicon.SchemaString:
		if len(values) == 1 {
			return values[0], nil
		}
		if s.Default != nil {
			return *s.Default, nil
		}
	case lexicon.SchemaInteger:
		if len(values) == 1 {
			n, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil {
				return nil, errNotNumber
			}
			return n, nil
		}
		if s.Default != nil {
			return int64(*s.Default), nil
		}
	case lexicon.SchemaBoolean:
		switch {
		case len(values) == 1 && values[0] == "true":
			return true, nil
		case len(values) == 1 && values[0] == "false":
			return false, nil
		case len(values) == 1:
			return nil, errNotBool
		case s.Default != nil:
			return *s.Default, nil
		}
	default:
		return nil, errParamType
	}
	return nil, nil
}

// validateObject checks data against an object that is not a record. The library validates records only,
// so the object is shown to it as one, under the name of the call.
func validateObject(cat lexicon.Catalog, nsid string, obj lexicon.SchemaObject, data map[string]any) error {
	ref := nsid + "#main"
	data = maps.Clone(data)
	data["$type"] = ref
	one := override{Catalog: cat, ref: ref, schema: lexicon.Schema{ID: ref, Def: lexicon.SchemaRecord{Type: "record", Key: "any", Record: obj}}}
	if err := lexicon.ValidateRecord(one, data, ref, 0); err != nil {
		return fmt.Errorf("%w %s: %w", ErrInvalid, nsid, err)
	}
	return nil
}

// override is a catalog with one definition put in the place of another.
type override struct {
	lexicon.Catalog
	ref    string
	schema lexicon.Schema
}

// Resolve implements lexicon.Catalog.
func (o override) Resolve(ref string) (*lexicon.Schema, error) {
	if ref == o.ref {
		return &o.schema, nil
	}
	return o.Catalog.Resolve(ref)
}
