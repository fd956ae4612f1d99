package adopt

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

var (
	expression = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\$\{\{\s*(.*?)\s*\}\}`) })
	onlySecret = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s*\$\{\{\s*secrets\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}\s*$`)
	})
	member = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(secrets|matrix|env|inputs|github\.event\.inputs)\.([A-Za-z_][A-Za-z0-9_-]*)$`)
	})
	unsafe = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9_-]+`) })
)

// safe is s as a part of a file name.
func safe(s string) string {
	if s = strings.Trim(unsafe().ReplaceAllString(s, "-"), "-"); s == "" {
		return "workflow"
	}
	return s
}

// variables are the expressions that are a variable here.
func variables() map[string]string {
	return map[string]string{
		"github.sha": "TANGLED_SHA", "github.ref": "TANGLED_REF", "github.ref_name": "TANGLED_REF_NAME", "github.ref_type": "TANGLED_REF_TYPE",
		"github.event_name": "TANGLED_PIPELINE_KIND", "github.head_ref": "TANGLED_PR_SOURCE_BRANCH", "github.base_ref": "TANGLED_PR_TARGET_BRANCH",
		"github.repository": "TANGLED_REPO_NAME", "github.actor": "", "github.workspace": "PWD", "github.run_id": "TANGLED_PIPELINE_ID",
	}
}

// files are the step files of Actions and ours.
func files() *strings.Replacer {
	return strings.NewReplacer("GITHUB_ENV", "SPINDLE_ENV", "GITHUB_OUTPUT", "SPINDLE_OUTPUT", "GITHUB_PATH", "SPINDLE_PATH",
		"GITHUB_STEP_SUMMARY", "SPINDLE_SUMMARY", "GITHUB_SHA", "TANGLED_SHA", "GITHUB_REF_NAME", "TANGLED_REF_NAME", "GITHUB_REF", "TANGLED_REF", "GITHUB_WORKSPACE", "PWD")
}

// text is a command with its expressions as variables of the shell. An expression in a command is text that others may
// write put into a shell; a variable is not, so that is also the safer form.
func (g *github) text(s string, line int, d *draft) string {
	lost := map[string]bool{}
	s = expression().ReplaceAllStringFunc(s, func(whole string) string {
		x := expression().FindStringSubmatch(whole)[1]
		if v := variables()[x]; v != "" {
			return "${" + v + "}"
		}
		m := member().FindStringSubmatch(x)
		if m == nil {
			lost[x] = true
			return whole
		}
		switch m[1] {
		case "secrets":
			if !slices.Contains(d.secrets, m[2]) {
				d.secrets = append(d.secrets, m[2])
			}
			return "${" + m[2] + "}"
		case "matrix":
			return "${SPINDLE_MATRIX_" + upper(m[2]) + "}"
		case "env":
			return "${" + m[2] + "}"
		}
		return "${TANGLED_INPUT_" + upper(m[2]) + "}"
	})
	for x := range lost {
		g.note(line, "the expression ${{ "+x+" }}", "nothing is put into commands; let the command compute it, or use a TANGLED_ variable")
	}
	return s
}

func upper(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }

// cond maps a condition, if it is one of the words that both have.
func (g *github) cond(p pair, to *string) {
	x := strings.TrimSpace(p.value.text)
	if m := expression().FindStringSubmatch(x); m != nil && m[0] == x {
		x = m[1]
	}
	switch x {
	case "always()", "failure()", "success()", "cancelled()":
		*to = x
		return
	case "!cancelled()":
		*to = "always()"
		return
	}
	y := strings.NewReplacer("github.ref_name", "trigger.branch", "github.ref", "trigger.ref", "github.event_name", "trigger.event", "'", `"`).Replace(x)
	if simple().MatchString(y) {
		*to = y
		return
	}
	g.note(p.line, "if: "+x, "write it with trigger, inputs, matrix and needs; see docs/workflow.md")
}

// simple is a comparison that means the same in both languages.
var simple = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^trigger\.(branch|ref|event) (==|!=) "[^"$]*"$`) })

func (g *github) step(s *node, d *draft) {
	if uses := s.str("uses"); uses != "" {
		g.uses(s, uses, d)
		return
	}
	out := step{name: s.str("name")}
	for _, p := range s.pairs {
		switch p.key {
		case "name":
		case "id":
			g.note(p.line, "id of a step", "outputs belong to the workflow: write them to $SPINDLE_OUTPUT; variables for later steps go to $SPINDLE_ENV")
		case "run":
			out.command = files().Replace(g.text(p.value.text, p.value.line, d))
		case "if":
			g.cond(p, &out.cond)
		case "env":
			out.env = g.env(p.value, d)
		case "shell":
			if sh := p.value.text; sh == "bash" || sh == "sh" {
				out.shell = sh
			} else {
				g.note(p.line, "shell "+sh, "shell: names a program that takes -c")
			}
		case "working-directory":
			out.dir = strings.TrimPrefix(p.value.text, "./")
		case "continue-on-error":
			out.goOn = p.value.text == "true"
		case "timeout-minutes":
			out.timeout = minutes(p.value.text)
		default:
			g.note(p.line, p.key+" of a step", "this has no counterpart; see docs/workflow.md")
		}
	}
	if strings.TrimSpace(out.command) == "" {
		g.note(s.line, "a step without a command", "write its command")
		return
	}
	d.steps = append(d.steps, out)
}

// uses maps the actions that are a part of the language, and says of the others what to do.
func (g *github) uses(s *node, uses string, d *draft) {
	line := s.get("uses").line
	name, _, _ := strings.Cut(uses, "@")
	with := s.get("with")
	switch {
	case name == "actions/checkout":
		if n := with.str("fetch-depth"); n == "0" {
			d.depth = "1000000"
		} else if n != "" && strings.Trim(n, "0123456789") == "" {
			d.depth = n
		}
		for _, p := range with.pairsOf() {
			if p.key != "fetch-depth" && p.key != "submodules" && p.key != "persist-credentials" {
				g.note(p.line, p.key+" of actions/checkout", "the commit is checked out by itself; see clone: in docs/workflow.md")
			}
		}
	case strings.HasPrefix(name, "actions/setup-"), name == "dtolnay/rust-toolchain", name == "oven-sh/setup-bun", name == "pnpm/action-setup":
		g.note(line, uses, "tools come from the machine, or from image: or dependencies:")
	case name == "actions/upload-artifact":
		if paths := strings.Fields(strings.ReplaceAll(with.str("path"), "\n", " ")); len(paths) > 0 && !strings.Contains(with.str("path"), "${{") {
			for i, p := range paths {
				p = strings.TrimPrefix(p, "./")
				if strings.HasSuffix(p, "/") || !strings.ContainsAny(p, ".*") {
					p = strings.TrimSuffix(p, "/") + "/**"
				}
				paths[i] = p
			}
			art := safe(with.str("name"))
			d.arts = append(d.arts, artifact{art, paths})
			return
		}
		g.note(line, uses, "write artifacts: with a name and paths")
	case name == "actions/cache":
		g.note(line, uses, "write cache: with a key, paths: and, in hash:, the files that the key depends on")
	case name == "actions/download-artifact":
		g.note(line, uses, "workflows do not share files; build in one workflow, or fetch from where it was published")
	default:
		g.note(line, uses, "write what it does as a command")
	}
}
