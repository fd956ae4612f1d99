package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	indigo "github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"golang.org/x/net/publicsuffix"

	"spindle/internal/clock"
	"spindle/internal/netguard"
)

const (
	maxDocument   = 64 << 10
	lookupTimeout = 5 * time.Second
)

// DirectoryConfig says where and how DIDs are resolved.
type DirectoryConfig struct {
	// PLCURL is the origin of the PLC directory. "" means https://plc.directory.
	PLCURL string
	// Client is a client made by a netguard.Guard. Required; its transport is used, its timeout replaced.
	Client *http.Client
	// Clock is for the limits. Nil means the real one. The cache's ages are always real time.
	Clock clock.Clock
	// Dev accepts did:web names of the .test zone, fetches them over plain http, and allows http endpoints.
	Dev bool
	// Capacity bounds the cached documents. Zero means 20,000.
	Capacity int
	// TTL is how long a document is believed. Zero means 5 min.
	TTL time.Duration
	// ErrTTL is how long a failure is remembered. Zero means 15 s.
	ErrTTL time.Duration
}

// Directory resolves DIDs to Identities. Make it with NewDirectory; it is safe for concurrent use and has
// no goroutines of its own. Lookups of one DID at the same time are one request.
type Directory struct {
	clock     clock.Clock
	dev       bool
	cache     *indigo.CacheDirectory
	purges    *buckets
	refreshes *buckets
	fresh     *buckets // has a token for each handle that is due to be confirmed again
}

// NewDirectory returns an empty directory.
func NewDirectory(c DirectoryConfig) *Directory {
	if c.PLCURL == "" {
		c.PLCURL = indigo.DefaultPLCURL
	}
	if c.Clock == nil {
		c.Clock = clock.Real{}
	}
	if c.Capacity <= 0 {
		c.Capacity = 20_000
	}
	if c.TTL <= 0 {
		c.TTL = 5 * time.Minute
	}
	if c.ErrTTL <= 0 {
		c.ErrTTL = 15 * time.Second
	}
	client := *c.Client
	client.Timeout = lookupTimeout
	client.Transport = &documents{next: c.Client.Transport, dev: c.Dev}
	base := indigo.BaseDirectory{
		PLCURL:     strings.TrimSuffix(c.PLCURL, "/"),
		HTTPClient: client,
		UserAgent:  "spindle",
		// Handles cost DNS lookups and decide nothing, so they are looked up only when asked for.
		SkipHandleVerification: true,
	}
	if c.Dev {
		base.SkipDNSDomainSuffixes = []string{".test"}
	}
	inner := &resolver{
		base:  &base,
		clock: c.Clock,
		dids:  newBuckets(5*time.Second, 6, c.Capacity),
		zones: newBuckets(100*time.Millisecond, 50, 4096),
		slots: make(chan struct{}, 64),
	}
	return &Directory{
		clock: c.Clock,
		dev:   c.Dev,
		// Without handle verification every cached handle counts as invalid, so the time for invalid handles is the
		// one for documents. A TTL of the cache proper would start a goroutine that nobody can stop.
		cache:     indigo.NewCacheDirectory(inner, c.Capacity, 0, c.ErrTTL, c.TTL),
		purges:    newBuckets(time.Minute, 1, c.Capacity),
		refreshes: newBuckets(20*time.Second, 5, c.Capacity),
		fresh:     newBuckets(c.TTL, 1, c.Capacity),
	}
}

// Lookup resolves a DID, from the cache if it can. Errors: ErrBadDID, ErrNotFound, ErrBadDocument, and the
// temporary ErrUnreachable and ErrBusy.
func (d *Directory) Lookup(ctx context.Context, did string) (*Identity, error) {
	if err := CheckDID(did, d.dev); err != nil {
		return nil, err
	}
	doc, err := d.cache.LookupDID(ctx, syntax.DID(did))
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", did, classify(err))
	}
	i := &Identity{DID: did, doc: doc, dev: d.dev}
	if h, err := doc.DeclaredHandle(); err == nil {
		i.Handle = h.String()
	}
	return i, nil
}

// Purge forgets what is known of a DID, so that the next Lookup asks again. It does so at most once a minute
// for one DID and reports whether it did: a bad signature may mean a new key, and anybody can send bad
// signatures.
func (d *Directory) Purge(ctx context.Context, did string) bool {
	if CheckDID(did, d.dev) != nil || !d.purges.allow(did, d.clock.Now()) {
		return false
	}
	return d.cache.Purge(ctx, syntax.DID(did).AtIdentifier()) == nil
}

// Refresh is Lookup without the cache, for when somebody says that the document has changed. Anybody may say so,
// so each DID has few of them: the error is the temporary ErrBusy after five at once, or three a minute.
func (d *Directory) Refresh(ctx context.Context, did string) (*Identity, error) {
	if err := CheckDID(did, d.dev); err != nil {
		return nil, err
	}
	if !d.refreshes.allow(did, d.clock.Now()) {
		return nil, fmt.Errorf("look up %s again: %w", did, ErrBusy)
	}
	if err := d.cache.Purge(ctx, syntax.DID(did).AtIdentifier()); err != nil {
		return nil, fmt.Errorf("forget %s: %w", did, err)
	}
	return d.Lookup(ctx, did)
}

// Handle is the DID's handle if the handle's own domain confirms it, and "" if not: for display only.
func (d *Directory) Handle(ctx context.Context, did string) string {
	i, err := d.Lookup(ctx, did)
	if err != nil || i.Handle == "" || checkHost(i.Handle, d.dev) != nil {
		return ""
	}
	// The cache keeps a confirmed handle for ever; its domain may have changed hands since.
	if h := syntax.Handle(i.Handle); d.fresh.allow(i.Handle, d.clock.Now()) && d.cache.Purge(ctx, h.AtIdentifier()) != nil {
		return ""
	}
	owner, err := d.cache.ResolveHandle(ctx, syntax.Handle(i.Handle))
	if err != nil || owner.String() != did {
		return ""
	}
	return i.Handle
}

// resolver is the uncached lookup: bounded in time, in number, and for each DID and zone.
type resolver struct {
	base  *indigo.BaseDirectory
	clock clock.Clock
	dids  *buckets      // lookups of one DID
	zones *buckets      // did:web lookups below one registrable domain
	slots chan struct{} // lookups at once
}

var _ indigo.Directory = (*resolver)(nil)

// enter takes a slot and detaches ctx: the result is shared and remembered, so one caller that hangs up must
// not make it an error for all. The caller runs leave.
func (r *resolver) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTimeout)
	select {
	case r.slots <- struct{}{}:
		return ctx, func() { <-r.slots; cancel() }, nil
	case <-ctx.Done():
		cancel()
		return nil, nil, ErrBusy
	}
}

// LookupDID implements indigo's Directory.
func (r *resolver) LookupDID(ctx context.Context, did syntax.DID) (*indigo.Identity, error) {
	now := r.clock.Now()
	if !r.dids.allow(did.String(), now) {
		return nil, fmt.Errorf("%w of %s", ErrBusy, did)
	}
	if did.Method() == "web" {
		zone, err := publicsuffix.EffectiveTLDPlusOne(did.Identifier())
		if err != nil {
			zone = did.Identifier()
		}
		if !r.zones.allow(zone, now) {
			return nil, fmt.Errorf("%w below %s", ErrBusy, zone)
		}
	}
	ctx, leave, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return r.base.LookupDID(ctx, did)
}

// LookupHandle implements indigo's Directory.
func (r *resolver) LookupHandle(ctx context.Context, h syntax.Handle) (*indigo.Identity, error) {
	ctx, leave, err := r.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return r.base.LookupHandle(ctx, h)
}

// Lookup implements indigo's Directory.
func (r *resolver) Lookup(ctx context.Context, a syntax.AtIdentifier) (*indigo.Identity, error) {
	if did, err := a.AsDID(); err == nil {
		return r.LookupDID(ctx, did)
	}
	h, err := a.AsHandle()
	if err != nil {
		return nil, ErrBadDID
	}
	return r.LookupHandle(ctx, h)
}

// Purge implements indigo's Directory; there is nothing to forget here.
func (r *resolver) Purge(context.Context, syntax.AtIdentifier) error { return nil }

// classify gives a failed lookup one of our names.
func classify(err error) error {
	var (
		syntaxErr *json.SyntaxError
		typeErr   *json.UnmarshalTypeError
		netErr    net.Error
	)
	switch {
	case errors.Is(err, ErrBusy), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, indigo.ErrDIDNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, netguard.ErrDenied), errors.Is(err, netguard.ErrTooLarge),
		errors.As(err, &syntaxErr), errors.As(err, &typeErr):
		return fmt.Errorf("%w: %w", ErrBadDocument, err)
	case errors.Is(err, indigo.ErrDIDResolutionFailed), errors.As(err, &netErr), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, errBody):
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	default:
		return fmt.Errorf("%w: %w", ErrBadDocument, err)
	}
}
