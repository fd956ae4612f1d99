package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"spindle/engines"
	"spindle/internal/clock"
	"spindle/rbac"
)

// Options say what server to build. Fields without a default are required.
type Options struct {
	// Hostname is the name under which the server is known; its DID is did:web:<hostname>.
	Hostname string
	// PublicURL is where people reach the pages; empty means https://<hostname>.
	PublicURL string
	// Owner is the DID that owns the server, Admins are further DIDs with the same rights but to the role itself.
	Owner  string
	Admins []string
	// Members are whom closed admission lets in, Banned the accounts and repositories for which nothing is done.
	Members, Banned []string
	// Admission is closed unless set otherwise.
	Admission rbac.Admission

	// KeyPath is the EC P-256 key behind the server's DID document. It is never generated here.
	KeyPath string
	// OIDCKeyPath, SecretsKeyPath and DBPath are files; the keys are generated on the first start. Empty keys
	// mean files beside the database.
	OIDCKeyPath    string
	SecretsKeyPath string
	DBPath         string
	// OIDCIssuer is the `iss` of ID tokens; empty means PublicURL.
	OIDCIssuer string
	// LogDir, RepoDir and StateDir hold step output, fetched git objects, and what running attempts need.
	LogDir, RepoDir, StateDir string

	// Listener, if set, is served instead of ListenAddr. MetricsAddr empty means no metrics listener.
	Listener    net.Listener
	ListenAddr  string
	MetricsAddr string

	// Jetstream lists the addresses of record streams with commas, the preferred one first; PLC is the directory of
	// did:plc.
	Jetstream string
	// OnlyFollowed takes from record streams nothing of accounts that have no role here and no repository.
	OnlyFollowed bool
	PLC          string
	// NoKnotStreams leaves the event streams of knots alone: pushes are then heard of by calls only.
	NoKnotStreams bool
	// Dev allows plain http and private addresses, and Hosts then maps names to addresses.
	Dev   bool
	Hosts map[string]string
	// Git is the git program; empty means the one on the PATH.
	Git string

	// Engines are where attempts run, best first.
	Engines []engines.Engine
	// Labels are what the machine offers to runs_on, Seats how many workflows run at a time.
	Labels []string
	Seats  int
	// Timeout bounds a workflow that names no timeout; MaxTimeout those that do.
	Timeout, MaxTimeout time.Duration
	// Drain is how long running workflows may go on after a stop was asked for.
	Drain time.Duration
	// ReadEvery is how often the records of all followed accounts are asked for anew, LookEvery how often the refs of
	// all repositories are compared, LateAge how old what is found by it may be and still start something. Zero means
	// the defaults of package backfill.
	ReadEvery, LookEvery, LateAge time.Duration
	// LookGrace is how long a ref must be elsewhere before it counts as a push that nobody told of.
	LookGrace time.Duration
	// Proxies are the networks of reverse proxies whose X-Forwarded-For is believed.
	Proxies []netip.Prefix
	// Origins are the web origins that browsers may call from; "*" is every origin.
	Origins []string

	// Version is shown at the foot of the pages.
	Version string

	Clock clock.Clock
	Log   *slog.Logger
}

// plcOrOther tells whether a did:plc has the form that the directory gives (24 characters of base32; the did:plc
// specification, https://web.plc.directory/spec/v0.1/did-plc): a placeholder would serve nobody.
func plcOrOther(did string) bool {
	id, plc := strings.CutPrefix(did, "did:plc:")
	return !plc || len(id) == 24 && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ErrSetting is an option that cannot be worked with.
var ErrSetting = errors.New("a setting is wrong")

// check fills in defaults and refuses what cannot work.
func (o *Options) check() error {
	if o.Clock == nil {
		o.Clock = clock.Real{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hostname == "" || strings.ContainsAny(o.Hostname, "/:@ ") {
		return fmt.Errorf("hostname %q must be a bare host name such as ci.example.com", o.Hostname)
	}
	if _, err := syntax.ParseDID("did:web:" + o.Hostname); err != nil {
		return fmt.Errorf("hostname %q does not make a did:web: %w", o.Hostname, err)
	}
	for _, did := range slices.Concat([]string{o.Owner}, o.Admins, o.Members, o.Banned) {
		if _, err := syntax.ParseDID(did); err != nil || !plcOrOther(did) {
			return fmt.Errorf("%q is not a DID (did:plc:… or did:web:…); owner, admins, members and banned are told by DID", did)
		}
	}
	for _, did := range o.Banned {
		if did == o.Owner || slices.Contains(o.Admins, did) || slices.Contains(o.Members, did) {
			return fmt.Errorf("%s is banned and has a role as well; take it from one of the lists", did)
		}
	}
	if o.Admission == "" {
		o.Admission = rbac.Closed
	}
	if o.Admission != rbac.Closed && o.Admission != rbac.Open {
		return fmt.Errorf("admission %q is not closed or open", o.Admission)
	}
	if o.PublicURL == "" {
		o.PublicURL = "https://" + o.Hostname
	}
	o.PublicURL = strings.TrimRight(o.PublicURL, "/")
	if o.OIDCIssuer == "" {
		o.OIDCIssuer = o.PublicURL
	}
	beside := filepath.Dir(o.DBPath)
	if o.OIDCKeyPath == "" {
		o.OIDCKeyPath = filepath.Join(beside, "oidc.key")
	}
	if o.SecretsKeyPath == "" {
		o.SecretsKeyPath = filepath.Join(beside, "keys", "secrets.key")
	}
	if o.Drain <= 0 {
		o.Drain = 30 * time.Second
	}
	if len(o.Engines) == 0 {
		return fmt.Errorf("no engine: nothing could run")
	}
	return nil
}
