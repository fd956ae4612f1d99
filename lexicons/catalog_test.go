package lexicons_test

import (
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/lexicon"
	"github.com/bluesky-social/indigo/lex/lexlint"
	"github.com/stretchr/testify/require"

	"spindle/lexicons"
)

// eachLexicon calls f with every lexicon file.
func eachLexicon(t *testing.T, f func(t *testing.T, file string, sf *lexicon.SchemaFile, raw []byte)) {
	t.Helper()
	n := 0
	err := fs.WalkDir(lexicons.FS, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := lexicons.FS.ReadFile(file)
		require.NoError(t, err)
		var sf lexicon.SchemaFile
		require.NoError(t, json.Unmarshal(raw, &sf), file)
		require.NoError(t, sf.FinishParse(), file)
		n++
		t.Run(file, func(t *testing.T) { f(t, file, &sf, raw) })
		return nil
	})
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 35)
}

func TestCatalogHoldsEveryDefinition(t *testing.T) {
	t.Parallel()
	cat, err := lexicons.NewCatalog()
	require.NoError(t, err)
	eachLexicon(t, func(t *testing.T, file string, sf *lexicon.SchemaFile, raw []byte) {
		require.Equal(t, file, strings.ReplaceAll(sf.ID, ".", "/")+path.Ext(file), "the id is the path")
		for name := range sf.Defs {
			_, err := cat.Resolve(sf.ID + "#" + name)
			require.NoError(t, err)
		}
		for _, ref := range refs(t, raw) {
			if strings.HasPrefix(ref, "#") {
				ref = sf.ID + ref
			}
			_, err := cat.Resolve(ref)
			require.NoError(t, err, "a ref to nothing")
		}
	})
}

// refs collects the values of every "ref" and "refs" of a lexicon.
func refs(t *testing.T, raw []byte) []string {
	t.Helper()
	var out []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			if s, ok := v["ref"].(string); ok {
				out = append(out, s)
			}
			if l, ok := v["refs"].([]any); ok {
				for _, e := range l {
					out = append(out, e.(string))
				}
			}
			for _, e := range v {
				walk(e)
			}
		}
	}
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	walk(v)
	return out
}

func TestLexiconsPassTheLinter(t *testing.T) {
	t.Parallel()
	eachLexicon(t, func(t *testing.T, _ string, sf *lexicon.SchemaFile, _ []byte) {
		for _, issue := range lexlint.LintSchemaFile(sf) {
			if issue.LintLevel == "error" {
				t.Errorf("%s: %s", issue.LintName, issue.Message)
			}
		}
	})
}

// Every call says which errors it may end with, each with a name a client can compare and a sentence.
func TestEveryCallHasAClosedListOfErrors(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	eachLexicon(t, func(t *testing.T, _ string, _ *lexicon.SchemaFile, raw []byte) {
		var sf struct {
			Defs map[string]struct {
				Type   string
				Errors []struct{ Name, Description string }
			}
		}
		require.NoError(t, json.Unmarshal(raw, &sf))
		for _, def := range sf.Defs {
			switch def.Type {
			case "query", "procedure", "subscription":
				require.NotEmpty(t, def.Errors)
				seen := make(map[string]bool)
				for _, e := range def.Errors {
					require.Regexp(t, name, e.Name)
					require.NotEmpty(t, e.Description)
					require.False(t, seen[e.Name], "%s is listed twice", e.Name)
					seen[e.Name] = true
				}
			}
		}
	})
}
