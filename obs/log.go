package obs

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// NewLogger writes to w in format "text" or "json" at the level "debug", "info", "warn" or "error", in small or
// capital letters; anything else is refused. Each record is one line: what it holds cannot begin another.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	l, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[strings.ToLower(level)]
	if !ok {
		return nil, fmt.Errorf("log level %q is not debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("log format %q is not text or json", format)
}
