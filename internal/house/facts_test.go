package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources parses the files of a folder, tests apart.
func sources(t *testing.T, folder string) []*ast.File {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
	require.NoError(t, err)
	var out []*ast.File
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		p, err := parser.ParseFile(token.NewFileSet(), f, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		out = append(out, p)
	}
	require.NotEmpty(t, out)
	return out
}

// settings reads the names and defaults of the settings from the struct that the command fills.
func settings(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, f := range sources(t, "cmd/spindle") {
		ast.Inspect(f, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			text, err := strconv.Unquote(field.Tag.Value)
			require.NoError(t, err)
			name, options, _ := strings.Cut(reflect.StructTag(text).Get("env"), ",")
			if name == "" {
				return true
			}
			_, value, _ := strings.Cut(options, "default=")
			out[name] = value
			return true
		})
	}
	return out
}

var setting = regexp.MustCompile(`^SPINDLE_[A-Z_]+$`)

// word is a cell that is nothing but one value.
var word = regexp.MustCompile("^`[^`]*`$")

// TestSettingsArePutDown holds the table of docs/operate.md to the settings that the command reads.
func TestSettingsArePutDown(t *testing.T) {
	t.Parallel()
	known := settings(t)
	require.Greater(t, len(known), 20)
	told := map[string][]string{}
	for name, cells := range rows(page(t, "docs/operate.md")) {
		if setting.MatchString(name) {
			told[name] = cells
		}
	}
	for name, value := range known {
		cells, ok := told[name]
		if !ok {
			t.Errorf("docs/operate.md does not say what %s is", name)
			continue
		}
		require.Len(t, cells, 2, "%s: a row is name, default, meaning", name)
		if value != "" && cells[0] != "`"+value+"`" {
			t.Errorf("docs/operate.md says that the default of %s is %s; it is `%s`", name, cells[0], value)
		}
		if value == "" && word.MatchString(cells[0]) {
			t.Errorf("docs/operate.md gives %s the default %s; the code has none", name, cells[0])
		}
	}
	for name := range told {
		if _, ok := known[name]; !ok {
			t.Errorf("docs/operate.md explains %s, which nothing reads", name)
		}
	}
}

// TestCommandsArePutDown holds docs/cli.md to the commands, flags and exit codes of the code.
func TestCommandsArePutDown(t *testing.T) {
	t.Parallel()
	cli := page(t, "docs/cli.md")
	seen := 0
	for _, f := range sources(t, "cmd/spindle") {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CompositeLit:
				for _, e := range n.Elts {
					kv, ok := e.(*ast.KeyValueExpr)
					if !ok || !isIdent(kv.Key, "Name") {
						continue
					}
					if v, ok := kv.Value.(*ast.BasicLit); ok {
						name, err := strconv.Unquote(v.Value)
						require.NoError(t, err)
						seen++
						if sel, ok := n.Type.(*ast.SelectorExpr); ok && strings.HasSuffix(sel.Sel.Name, "Flag") {
							name = "--" + name
						}
						if !strings.Contains(cli, name) {
							t.Errorf("docs/cli.md does not name %s", name)
						}
					}
				}
			case *ast.ValueSpec:
				for i, id := range n.Names {
					if v, ok := value(n, i); ok && strings.HasPrefix(id.Name, "exit") {
						seen++
						if !strings.Contains(cli, "\n| `"+v+"` |") {
							t.Errorf("docs/cli.md does not say what exit code %s (%s) is", v, id.Name)
						}
					}
				}
			}
			return true
		})
	}
	require.Greater(t, seen, 10)
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func value(n *ast.ValueSpec, i int) (string, bool) {
	if i >= len(n.Values) {
		return "", false
	}
	v, ok := n.Values[i].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	return v.Value, true
}

// TestMetricsArePutDown holds the table of docs/operate.md to the figures that the code registers.
func TestMetricsArePutDown(t *testing.T) {
	t.Parallel()
	metric := regexp.MustCompile(`Name: "(spindle_[a-z_]+)"`)
	operate := page(t, "docs/operate.md")
	known := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			require.NoError(t, err)
			for _, m := range metric.FindAllSubmatch(b, -1) {
				known[string(m[1])] = true
			}
		}
	}
	require.NotEmpty(t, known)
	told := rows(operate)
	for m := range known {
		require.Contains(t, told, m, "docs/operate.md")
	}
	for m := range told {
		if strings.HasPrefix(m, "spindle_") && !known[m] {
			t.Errorf("docs/operate.md explains %s, which nothing counts", m)
		}
	}
}

// TestDependenciesArePutDown holds docs/dependencies.md to go.mod: a line for each module that is required directly
// or imported by code of ours, and none for others.
func TestDependenciesArePutDown(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	required := map[string]bool{} // module to whether go.mod calls it direct
	for _, m := range regexp.MustCompile(`(?m)^\s+(\S+) v\S+( // indirect)?$`).FindAllStringSubmatch(string(mod), -1) {
		required[m[1]] = m[2] == ""
	}
	require.Greater(t, len(required), 20)
	used := map[string]bool{}
	for m, direct := range required {
		if direct {
			used[m] = true
		}
	}
	for _, p := range packages(t) {
		for _, i := range append(append(append([]string{}, p.Imports...), p.TestImports...), p.XTestImports...) {
			if m := module(i, required); m != "" {
				used[m] = true
			}
		}
	}
	told := rows(page(t, "docs/dependencies.md"))
	for m := range used {
		if _, ok := told[m]; !ok {
			t.Errorf("docs/dependencies.md does not say why %s is used", m)
		}
	}
	for m := range told {
		if !used[m] {
			t.Errorf("docs/dependencies.md speaks of %s, which is not used directly", m)
		}
	}
}

// module is the longest required module that holds the package, or "".
func module(pkg string, required map[string]bool) string {
	best := ""
	for m := range required {
		if (pkg == m || strings.HasPrefix(pkg, m+"/")) && len(m) > len(best) {
			best = m
		}
	}
	return best
}
