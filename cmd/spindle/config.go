package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sethvargo/go-envconfig"

	"spindle/ingest"
)

// config is the environment of `spindle serve`. The names and defaults are those of the network's existing
// server, so that its unit files keep working; names that only this server has are marked with (own).
type config struct {
	Role      string `env:"SPINDLE_ROLE, default=standalone"`
	LogFormat string `env:"SPINDLE_LOG_FORMAT, default=text"`
	LogLevel  string `env:"SPINDLE_LOG_LEVEL, default=info"` // (own)

	Hostname    string   `env:"SPINDLE_SERVER_HOSTNAME"`
	Owner       string   `env:"SPINDLE_SERVER_OWNER"`
	Admins      []string `env:"SPINDLE_SERVER_ADMINS"`
	Members     []string `env:"SPINDLE_SERVER_MEMBERS"`         // (own)
	Banned      []string `env:"SPINDLE_SERVER_BANNED"`          // (own)
	Proxies     []string `env:"SPINDLE_SERVER_TRUSTED_PROXIES"` // (own)
	Admission   string   `env:"SPINDLE_SERVER_ADMISSION, default=closed"`
	KeyPath     string   `env:"SPINDLE_SERVER_KEY_PATH"`
	ListenAddr  string   `env:"SPINDLE_SERVER_LISTEN_ADDR, default=0.0.0.0:6555"`
	MetricsAddr string   `env:"SPINDLE_SERVER_METRICS_LISTEN_ADDR, default=127.0.0.1:9091"`
	DBPath      string   `env:"SPINDLE_SERVER_DB_PATH, default=spindle.db"`
	RepoDir     string   `env:"SPINDLE_SERVER_REPO_DIR, default=repos"`
	LogDir      string   `env:"SPINDLE_SERVER_LOG_DIR, default=/var/log/spindle"`
	StateDir    string   `env:"SPINDLE_SERVER_STATE_DIR, default=state"` // (own)
	Jetstream   string   `env:"SPINDLE_SERVER_JETSTREAM_ENDPOINT, default=wss://jetstream1.us-west.bsky.network/subscribe"`
	Followed    bool     `env:"SPINDLE_SERVER_JETSTREAM_FOLLOWED_ONLY, default=false"` // (own)
	PLC         string   `env:"SPINDLE_SERVER_PLC_URL, default=https://plc.directory"`
	KnotStreams bool     `env:"SPINDLE_SERVER_KNOT_STREAMS, default=true"` // (own)
	Dev         bool     `env:"SPINDLE_SERVER_DEV, default=false"`
	DevHosts    []string `env:"SPINDLE_SERVER_DEV_EXTRA_HOSTS"`
	MaxJobs     int      `env:"SPINDLE_SERVER_MAX_JOB_COUNT, default=2"`
	PublicURL   string   `env:"SPINDLE_SERVER_PUBLIC_URL"`              // (own)
	SecretsKey  string   `env:"SPINDLE_SERVER_SECRETS_KEY_PATH"`        // (own)
	Git         string   `env:"SPINDLE_SERVER_GIT_PATH"`                // (own)
	Labels      []string `env:"SPINDLE_SERVER_LABELS"`                  // (own)
	Origins     []string `env:"SPINDLE_SERVER_CORS_ORIGINS, default=*"` // (own)

	OIDCIssuer  string `env:"SPINDLE_OIDC_ISSUER"`
	OIDCKeyPath string `env:"SPINDLE_OIDC_KEY_PATH"`

	Timeout    time.Duration `env:"SPINDLE_WORKFLOW_TIMEOUT, default=5m"`       // (own)
	MaxTimeout time.Duration `env:"SPINDLE_WORKFLOW_MAX_TIMEOUT, default=1h"`   // (own)
	Drain      time.Duration `env:"SPINDLE_DRAIN_TIMEOUT, default=30s"`         // (own)
	ReadEvery  time.Duration `env:"SPINDLE_BACKFILL_INTERVAL, default=24h"`     // (own)
	LookEvery  time.Duration `env:"SPINDLE_RECONCILE_INTERVAL, default=1h"`     // (own)
	LateAge    time.Duration `env:"SPINDLE_LATE_TRIGGER_MAX_AGE, default=168h"` // (own)
	// Nixery is the server that makes images of packages.
	Nixery string `env:"SPINDLE_NIXERY_PIPELINES_NIXERY, default=nixery.tangled.sh"`

	ImageDir        string   `env:"SPINDLE_IMAGES_DIR"`                          // (own)
	ImageAuth       string   `env:"SPINDLE_IMAGES_AUTH_FILE"`                    // (own)
	ImageMirrors    []string `env:"SPINDLE_IMAGES_MIRRORS"`                      // (own)
	ImageRegistries []string `env:"SPINDLE_IMAGES_REGISTRIES"`                   // (own)
	ImageDefault    string   `env:"SPINDLE_IMAGES_DEFAULT, default=host"`        // (own)
	ImageHost       bool     `env:"SPINDLE_IMAGES_HOST, default=true"`           // (own)
	ImageMaxMB      int64    `env:"SPINDLE_IMAGES_MAX_IMAGE_MB, default=8192"`   // (own)
	ImagesMaxMB     int64    `env:"SPINDLE_IMAGES_MAX_MB, default=40960"`        // (own)
	LayersMaxMB     int64    `env:"SPINDLE_IMAGES_MAX_LAYERS_MB, default=10240"` // (own)

	// Dummy offers the engine that runs nothing, for trying things out.
	Dummy bool `env:"SPINDLE_ENGINE_DUMMY, default=false"` // (own)
}

// foreign are prefixes and names of the existing server's settings that have no effect here: parts that this
// server does not have, or needs no setting for. They are told, not refused, so that a unit file still starts.
func foreign() []string {
	return []string{
		"SPINDLE_SERVER_QUEUE_SIZE", "SPINDLE_SERVER_DOCKER_SOCKET", "SPINDLE_SERVER_SECRETS_PROVIDER",
		"SPINDLE_SERVER_SECRETS_OPENBAO_", "SPINDLE_SERVER_HYDRANT_", "SPINDLE_SERVER_TAP_", "SPINDLE_OIDC_KEY_ID",
		"SPINDLE_NIXERY_PIPELINES_", "SPINDLE_MICROVM_PIPELINES_", "SPINDLE_NIX_CACHE_", "SPINDLE_ARTIFACT_STORES_",
		"SPINDLE_S3_LOG_BUCKET", "SPINDLE_CACHE_", "SPINDLE_MILL_",
	}
}

// readConfig reads environ, lines of NAME=value. unused lists the settings that have no effect.
func readConfig(ctx context.Context, environ []string) (c config, unused []string, err error) {
	vars := map[string]string{}
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, "SPINDLE_") {
			vars[name] = value
		}
	}
	known := settings()
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		switch {
		case slices.Contains(known, name):
		case strings.HasPrefix(name, "SPINDLE_TEST_") || strings.HasPrefix(name, "SPINDLE_BENCH_"):
		case slices.ContainsFunc(foreign(), func(p string) bool { return name == p || strings.HasSuffix(p, "_") && strings.HasPrefix(name, p) }):
			unused = append(unused, name)
		default:
			return c, nil, fmt.Errorf("unknown setting %s; did you mean %s? Unset it or correct the name (spindle serve --help lists them)", name, nearest(name, known))
		}
	}
	err = envconfig.ProcessWith(ctx, &envconfig.Config{Target: &c, Lookuper: envconfig.MapLookuper(vars)})
	if err != nil {
		return c, nil, fmt.Errorf("read the settings: %w", misread(err))
	}
	return c, unused, c.check()
}

// check names the setting that is missing or wrong, and what to put there.
func (c config) check() error {
	switch {
	case c.Role != "standalone":
		return fmt.Errorf("SPINDLE_ROLE=%q: this build runs as standalone; unset it", c.Role)
	case c.Hostname == "":
		return fmt.Errorf("SPINDLE_SERVER_HOSTNAME is not set; set it to the name people reach this server by, such as ci.example.com")
	case c.Owner == "":
		return fmt.Errorf("SPINDLE_SERVER_OWNER is not set; set it to your DID (did:plc:…)")
	case c.KeyPath == "":
		return fmt.Errorf("SPINDLE_SERVER_KEY_PATH is not set; make a key with: spindle key generate FILE")
	case c.MaxJobs < 1:
		return fmt.Errorf("SPINDLE_SERVER_MAX_JOB_COUNT=%d must be at least 1", c.MaxJobs)
	case !hasScheme(c.PLC, "https", "http"):
		return fmt.Errorf("SPINDLE_SERVER_PLC_URL=%q must be an address such as https://plc.directory", c.PLC)
	case c.PublicURL != "" && !hasScheme(c.PublicURL, "https", "http"):
		return fmt.Errorf("SPINDLE_SERVER_PUBLIC_URL=%q must be an address such as https://ci.example.com", c.PublicURL)
	case c.Hostname != strings.ToLower(c.Hostname):
		return fmt.Errorf("SPINDLE_SERVER_HOSTNAME=%q must be in lower case, as a did:web has it", c.Hostname)
	case c.Timeout > c.MaxTimeout:
		return fmt.Errorf("SPINDLE_WORKFLOW_TIMEOUT=%s is more than SPINDLE_WORKFLOW_MAX_TIMEOUT=%s; raise the second or lower the first", c.Timeout, c.MaxTimeout)
	case c.ReadEvery < time.Minute:
		return fmt.Errorf("SPINDLE_BACKFILL_INTERVAL=%s must be at least 1m", c.ReadEvery)
	case c.LookEvery < time.Minute:
		return fmt.Errorf("SPINDLE_RECONCILE_INTERVAL=%s must be at least 1m", c.LookEvery)
	case c.LateAge < time.Minute:
		return fmt.Errorf("SPINDLE_LATE_TRIGGER_MAX_AGE=%s must be at least 1m", c.LateAge)
	case c.ImageMaxMB < 1 || c.ImagesMaxMB < c.ImageMaxMB || c.LayersMaxMB < c.ImageMaxMB:
		return fmt.Errorf("SPINDLE_IMAGES_MAX_IMAGE_MB=%d must be at least 1, and at most SPINDLE_IMAGES_MAX_MB=%d and SPINDLE_IMAGES_MAX_LAYERS_MB=%d", c.ImageMaxMB, c.ImagesMaxMB, c.LayersMaxMB)
	case !c.ImageHost && (c.ImageDefault == "host" || c.ImageDefault == ""):
		return fmt.Errorf("SPINDLE_IMAGES_HOST=false: name the image of workflows that name none in SPINDLE_IMAGES_DEFAULT, such as docker.io/library/debian:stable")
	case len(c.DevHosts) > 0 && !c.Dev:
		return fmt.Errorf("SPINDLE_SERVER_DEV_EXTRA_HOSTS works only with SPINDLE_SERVER_DEV=true; unset one or set the other")
	}
	if _, err := ingest.ParseEndpoints(c.Jetstream); err != nil {
		return fmt.Errorf("SPINDLE_SERVER_JETSTREAM_ENDPOINT must be an address such as wss://jetstream.example.com/subscribe, or several with commas: %w", err)
	}
	return nil
}

// hasScheme tells whether address is one with a host and one of these schemes.
func hasScheme(address string, schemes ...string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Host != "" && slices.Contains(schemes, u.Scheme)
}

// proxies reads networks and single addresses.
func (c config) proxies() ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, p := range c.Proxies {
		net, err := netip.ParsePrefix(p)
		if addr, aerr := netip.ParseAddr(p); aerr == nil {
			net, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("SPINDLE_SERVER_TRUSTED_PROXIES: %q is neither an address nor a network such as 10.0.0.0/8", p)
		}
		out = append(out, net)
	}
	return out, nil
}

// hosts reads name:address entries.
func (c config) hosts() (map[string]string, error) {
	out := map[string]string{}
	for _, h := range c.DevHosts {
		name, addr, ok := strings.Cut(h, ":")
		if !ok || name == "" || addr == "" {
			return nil, fmt.Errorf("SPINDLE_SERVER_DEV_EXTRA_HOSTS: %q is not host:address", h)
		}
		out[name] = addr
	}
	return out, nil
}
