package web

import (
	"context"
	"io"

	"spindle/logs"
	"spindle/obs"
	"spindle/pipeline"
	"spindle/store"
)

// Pipelines are the reads that the pages are made of.
type Pipelines interface {
	Pipelines(ctx context.Context, q store.Query) (ps []pipeline.Pipeline, total int, err error)
	Pipeline(ctx context.Context, id pipeline.ID) (pipeline.Pipeline, bool, error)
	Stats(ctx context.Context) (store.Stats, error)
	// Changes are the numbered changes after one; LastChange is the newest number. Changed is closed at the
	// next change: take it before reading.
	Changes(ctx context.Context, after int64, limit int) ([]pipeline.Change, error)
	LastChange(ctx context.Context) (int64, error)
	Changed() <-chan struct{}
}

// Repos are the repositories served here.
type Repos interface {
	Repos(ctx context.Context) ([]store.RepoBinding, error)
}

// Logs are the outputs of attempts.
type Logs interface {
	Exists(ref logs.Ref) bool
	Read(ctx context.Context, ref logs.Ref, offset int64, most int) (lines []logs.Line, next int64, ended bool, err error)
	Follow(ctx context.Context, ref logs.Ref, offset int64, most int) (lines []logs.Line, next int64, ended bool, err error)
	Page(ctx context.Context, ref logs.Ref, from int64, count int) (lines []logs.Line, total int64, err error)
	Steps(ctx context.Context, ref logs.Ref) (map[int]int64, error)
	Offset(ctx context.Context, ref logs.Ref, line int64) (int64, error)
	OpenRaw(ref logs.Ref) (io.ReadCloser, error)
}

// Names knows the handles of accounts. It may be slow: pages never wait for it.
type Names interface {
	// Handle is the confirmed handle of did, or "".
	Handle(ctx context.Context, did string) string
}

// Health tells how the parts of the server are.
type Health interface {
	Components() []obs.Component
}
