package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outward is what opens a connection, or starts a program that may, past the guard: by import path and name. A
// name that ends in * stands for all that begin so.
func outward() map[string][]string {
	return map[string][]string{
		"net/http":                     {"DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Client", "Transport"},
		"net":                          {"Dial*", "Lookup*", "DefaultResolver", "Resolver"},
		"crypto/tls":                   {"Dial*"},
		"net/rpc":                      {"*"},
		"net/smtp":                     {"*"},
		"github.com/gorilla/websocket": {"DefaultDialer", "NewClient"},
		"golang.org/x/net/websocket":   {"*"},
		"golang.org/x/net/proxy":       {"*"},
		"os/exec":                      {"Command*", "Cmd", "LookPath"},
		"syscall":                      {"Connect", "ForkExec", "StartProcess"},
		"golang.org/x/sys/unix":        {"Connect"},
	}
}

// mayGoOut says for whom which of these is allowed, and why.
func mayGoOut(pkg, path, name string) bool {
	switch {
	case room(pkg) == "devnet", room(pkg) == "bench": // the network beside the server, and what measures it
		return true
	case strings.HasPrefix(pkg, "spindle/lexicons/internal/"), strings.HasSuffix(pkg, "test"): // makers of code, tools of tests
		return true
	case pkg == "spindle/internal/netguard": // the guard itself
		return path == "net" || path == "net/http"
	case pkg == "spindle/knot" && path == "os/exec": // git, through the guard's proxy
		return true
	case pkg == "spindle/desk" && path == "os/exec": // git, on the checkout of the person who asked; it fetches nothing, and is no part of a server
		return true
	case strings.HasPrefix(pkg, "spindle/engines/") && (path == "os/exec" || path == "syscall"): // the sandbox starts itself
		return true
	case path == "net/http" && name == "Client": // a type in a signature; what makes one is looked for apart
		return true
	}
	return false
}

// TestT24OneDialer proves that nothing of the server reaches outward but by internal/netguard, and that nothing
// but the knot room starts git.
func TestT24OneDialer(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			file := filepath.Join(p.Dir, name)
			fs := token.NewFileSet()
			f, err := parser.ParseFile(fs, file, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			seen++
			for _, found := range reaches(f) {
				if !mayGoOut(p.ImportPath, found.path, found.name) {
					t.Errorf("%s: %s of %s goes outward; use internal/netguard (git: the knot room)", fs.Position(found.at), found.name, found.path)
				}
			}
		}
	}
	require.Greater(t, seen, 200)
}

type reach struct {
	path, name string
	at         token.Pos
}

// reaches lists what f uses of outward. Beside names it looks for an http.Client and a websocket.Dialer that are
// made without a way to dial.
func reaches(f *ast.File) (out []reach) {
	byName := map[string]string{}
	for _, i := range f.Imports {
		path, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue
		}
		name := path[strings.LastIndexByte(path, '/')+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		if _, listed := outward()[path]; listed {
			byName[name] = path
		}
	}
	pick := func(e ast.Expr) (path, name string) {
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return "", ""
		}
		x, ok := s.X.(*ast.Ident)
		if !ok {
			return "", ""
		}
		return byName[x.Name], s.Sel.Name
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			path, name := pick(n)
			if path != "" && slices.ContainsFunc(outward()[path], func(p string) bool {
				head, all := strings.CutSuffix(p, "*")
				return p == name || all && strings.HasPrefix(name, head)
			}) {
				out = append(out, reach{path, name, n.Pos()})
			}
		case *ast.CompositeLit:
			path, name := pick(n.Type)
			need := map[string]string{"net/http.Client": "Transport", "github.com/gorilla/websocket.Dialer": "NetDialContext"}[path+"."+name]
			if need == "" {
				break
			}
			if !slices.ContainsFunc(n.Elts, func(e ast.Expr) bool {
				kv, ok := e.(*ast.KeyValueExpr)
				if !ok {
					return false
				}
				k, ok := kv.Key.(*ast.Ident)
				return ok && k.Name == need
			}) {
				out = append(out, reach{path, name + " without " + need, n.Pos()})
			}
		}
		return true
	})
	return out
}

// TestReachesAreFound proves that the search above finds what it looks for.
func TestReachesAreFound(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		`import "net/http"; var _ = http.DefaultClient`:                                        "DefaultClient",
		`import h "net/http"; var _, _ = h.Get("x")`:                                           "Get",
		`import "net/http"; var _ = &http.Client{Timeout: 1}`:                                  "Client without Transport",
		`import "net"; var _ = new(net.Dialer)`:                                                "Dialer",
		`import "net"; var _, _ = net.DialTimeout("", "", 1)`:                                  "DialTimeout",
		`import "net"; var _, _ = net.LookupHost("x")`:                                         "LookupHost",
		`import "github.com/gorilla/websocket"; var _ = websocket.DefaultDialer`:               "DefaultDialer",
		`import "github.com/gorilla/websocket"; var _ = websocket.Dialer{HandshakeTimeout: 1}`: "Dialer without NetDialContext",
		`import "os/exec"; var _ = exec.Command("git")`:                                        "Command",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; "+src, parser.SkipObjectResolution)
		require.NoError(t, err)
		var names []string
		for _, r := range reaches(f) {
			names = append(names, r.name)
		}
		require.Contains(t, names, want, src)
	}
}
