package secrets

import (
	"fmt"
	"log/slog"
)

// Value is a secret in the clear inside this package. It redacts itself wherever it is printed, so that no
// error or log line of ours can carry one; string(v) is the value.
type Value string

const redacted = "[redacted]"

// Format implements fmt.Formatter for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }
