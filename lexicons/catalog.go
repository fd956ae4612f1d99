package lexicons

import (
	"embed"
	"fmt"

	"github.com/bluesky-social/indigo/atproto/lexicon"
)

// FS holds the lexicon JSON, each file at the path that its NSID spells (org/tangled/repo/manifest.json).
//
//go:embed org sh
var FS embed.FS

// NewCatalog reads every lexicon into a catalog, for lexicon.ValidateRecord and for looking up what a
// definition says. An error means that a lexicon of this package is broken.
func NewCatalog() (*lexicon.BaseCatalog, error) {
	cat := lexicon.NewBaseCatalog()
	if err := cat.LoadEmbedFS(FS); err != nil {
		return nil, fmt.Errorf("read the lexicons: %w", err)
	}
	return cat, nil
}
