package workflow

import (
	"slices"
	"strings"
)

// pullNames are the parts of trigger.pull.
func pullNames() []string {
	return []string{"action", "source_branch", "target_branch", "source_repo", "base", "head", "fork"}
}

func triggerNames() []string {
	return []string{"event", "branch", "tag", "ref", "sha", "actor", "pull"}
}

// nameKind is the type of a name that nameFault let through.
func nameKind(name []string, s *scope) valueKind {
	switch {
	case name[0] == "trigger" && len(name) == 3 && name[2] == "fork":
		return kindBool
	case name[0] == "inputs" && s != nil:
		for _, d := range s.inputs {
			if d.Key == name[1] {
				return map[string]valueKind{InputBoolean: kindBool, InputNumber: kindNumber}[d.Type]
			}
		}
	}
	return kindText
}

// nameFault says what is wrong with the name x. Without a scope only its shape is looked at.
func nameFault(x *expr, s *scope) *exprFault {
	switch x.name[0] {
	case "ref":
		return x.depth(1, "ref")
	case "trigger":
		if f := x.among(1, "trigger", triggerNames(), "the names of trigger"); f != nil {
			return f
		}
		if x.name[1] != "pull" {
			return x.depth(2, "trigger."+x.name[1])
		}
		if f := x.among(2, "trigger.pull", pullNames(), "the names of trigger.pull"); f != nil {
			return f
		}
		return x.depth(3, "trigger.pull."+x.name[2])
	case "inputs":
		var keys []string
		if s != nil {
			for _, d := range s.inputs {
				keys = append(keys, d.Key)
			}
		}
		if f := x.amongScope(1, "inputs", keys, "the declared inputs", s); f != nil {
			return f
		}
		return x.depth(2, "inputs."+x.name[1])
	case "matrix":
		var keys []string
		if s != nil {
			keys = s.axes
		}
		if f := x.amongScope(1, "matrix", keys, "the axes of the matrix", s); f != nil {
			return f
		}
		return x.depth(2, "matrix."+x.name[1])
	case "needs":
		return x.needFault(s)
	}
	return x.unknownName(s)
}

func (x *expr) needFault(s *scope) *exprFault {
	if s != nil && !s.before {
		return x.fault("use names of trigger, inputs or matrix", "needs cannot be asked here: nothing has run yet")
	}
	var keys []string
	if s != nil {
		keys = s.needs
	}
	if f := x.amongScope(1, "needs", keys, "the workflows in needs", s); f != nil {
		return f
	}
	if f := x.among(2, "needs."+x.name[1], []string{"result", "outputs"}, "the names of a need"); f != nil {
		return f
	}
	want := 3
	if x.name[2] == "outputs" {
		want = 4
		if len(x.name) < 4 {
			return x.fault("write needs."+x.name[1]+".outputs.<name>", "%s has no value of its own", quoted(strings.Join(x.name, ".")))
		}
	}
	return x.depth(want, strings.Join(x.name[:want], "."))
}

// depth refuses more parts than n.
func (x *expr) depth(n int, what string) *exprFault {
	if len(x.name) > n {
		return x.fault("write "+what, "%s has no parts", what)
	}
	return nil
}

// amongScope is among where the scope knows the words; without a scope any word will do.
func (x *expr) amongScope(i int, of string, known []string, what string, s *scope) *exprFault {
	if s == nil && len(x.name) > i {
		return nil
	}
	if s != nil && len(known) == 0 {
		key := of
		return x.fault("declare it with "+key+":, or use another name", "this workflow has no %s", quoted(key))
	}
	return x.among(i, of, known, what)
}

// among refuses a part i of the name that is not among known.
func (x *expr) among(i int, of string, known []string, what string) *exprFault {
	if len(x.name) <= i {
		return x.fault("write "+of+".<name>, with one of "+list(known), "%s has no value of its own", quoted(of))
	}
	have := x.name[i]
	if slices.Contains(known, have) {
		return nil
	}
	f := x.fault("use one of "+list(known), "there is no %s (%s: %s)%s", quoted(of+"."+have), what, list(known), didYouMean(have, known))
	if w := nearest(have, known); w != "" {
		full := slices.Clone(x.name)
		full[i] = w
		f.fix, f.replace = "write "+strings.Join(full, "."), ref(strings.Join(full, "."))
	}
	return f
}

// unknownName reports a first word that is none of ours; those of other systems are told what to use instead.
func (x *expr) unknownName(s *scope) *exprFault {
	known := []string{"trigger", "inputs", "matrix", "needs", "ref"}
	first := x.name[0]
	whole := strings.Join(x.name, ".")
	switch first {
	case "env":
		return x.fault("decide inside the step, where the shell has the variable", "env cannot be asked: what decides whether something runs is known before anything has run")
	case "secrets":
		return x.fault("decide inside the step", "secrets cannot be asked: whether something runs must not depend on them")
	case "steps", "job", "jobs", "runner", "vars", "strategy":
		return x.fault("use trigger, inputs, matrix, needs or success()", "there is no %s here", quoted(first))
	case "github", "gitea", "forgejo":
		if w := githubName(whole[len(first):]); w != "" {
			f := x.fault("write "+w, "there is no %s; here it is called %s", quoted(whole), quoted(w))
			f.replace = ref(w)
			return f
		}
		return x.fault("use trigger.event, trigger.branch, trigger.tag, trigger.sha or trigger.actor", "there is no %s here", quoted(first))
	}
	if slices.Contains(append(statusFunctions(), textFunctions()...), first) {
		f := x.fault("write "+first+"()", "%s is a function", quoted(first))
		if slices.Contains(statusFunctions(), first) && len(x.name) == 1 {
			f.replace = ref(first + "()")
		}
		return f
	}
	f := x.fault("use one of "+list(known)+", or put a text in quotes", "there is no name %s (known: %s)%s", quoted(first), list(known), didYouMean(first, known))
	if w := nearest(first, known); w != "" {
		full := slices.Clone(x.name)
		full[0] = w
		f.fix, f.replace = "write "+strings.Join(full, "."), ref(strings.Join(full, "."))
	}
	return f
}

// githubName is what a name below GitHub's own context is called here, or "".
func githubName(rest string) string {
	switch rest {
	case ".event_name":
		return "trigger.event"
	case ".ref":
		return "trigger.ref"
	case ".ref_name":
		return "trigger.branch"
	case ".sha":
		return "trigger.sha"
	case ".actor":
		return "trigger.actor"
	case ".base_ref":
		return "trigger.pull.target_branch"
	case ".head_ref":
		return "trigger.pull.source_branch"
	}
	return ""
}
