package workflow

import (
	"regexp"
	"slices"
	"strings"
)

// What is checked of the keys that say when and whether a workflow runs.
var (
	// wordKey names an input or an axis of a matrix: it becomes a part of a variable and of an expression.
	wordKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,49}$`)
	// environmentName becomes a part of the subject of ID tokens, where anything else could be misread.
	environmentName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)
)

// needs reads the names of workflows that come before the one called self.
func (d *decoder) needs(p pair, self string) []string {
	d.use(FeatureNeeds, p.at)
	var out []string
	d.texts(p.key, p.at, p.value, needsLimit, func(n *node, s string) {
		name := baseName(s)
		switch {
		case name != s && fileName.MatchString(name):
			d.err(n.at, codeValue, "write "+name, "a need is named without the ending of its file, this is %s", quoted(s))
			d.mend(n.at, s, name)
		case !fileName.MatchString(name):
			d.err(n.at, codeValue, "write the name of its file without the ending, such as build", "%s cannot name a workflow", quoted(s))
		case name == self:
			d.err(n.at, codeNeeds, "remove it", "the workflow %s needs itself", quoted(s))
		case slices.Contains(out, name):
			d.warn(n.at, warnUnused, "remove it", "%s is in the list already", quoted(s))
		default:
			out = append(out, name)
			d.needsAt = append(d.needsAt, n.at)
		}
	})
	return out
}

func (d *decoder) concurrency(p pair) *Concurrency {
	d.use(FeatureConcurrency, p.at)
	c := &Concurrency{}
	if p.value.kind == scalar { // the name of the group alone
		c.Group = d.template(p)
		return c
	}
	d.object(p.value, `"concurrency"`, concurrencyKeys(), func(p pair) {
		switch p.key {
		case "group":
			c.Group = d.template(p)
		case "cancel":
			d.bool(p.key, p.at, p.value, &c.Cancel)
		}
	})
	return c
}

func (d *decoder) deploysTo(p pair) string {
	d.use(FeatureDeploysTo, p.at)
	s := d.word(p.key, p.at, p.value, nameLimit)
	if s != "" && !environmentName.MatchString(s) {
		d.err(p.value.at, codeValue, "use lower-case letters, digits and - only, at most 64, such as production", "%s cannot name an environment", quoted(s))
		if lower := strings.ToLower(s); environmentName.MatchString(lower) {
			d.mend(p.value.at, s, lower)
		}
	}
	return s
}

func approvers() []string { return []string{ByCollaborator, ByOwner} }

func (d *decoder) approval(p pair) *Approval {
	d.use(FeatureApproval, p.at)
	a := &Approval{By: ByCollaborator}
	d.object(p.value, `"approval"`, approvalKeys(), func(p pair) {
		switch p.key {
		case "by":
			d.choice(p, approvers(), "who may approve is", &a.By)
		case "others_only":
			d.bool(p.key, p.at, p.value, &a.OthersOnly)
		case "expires":
			d.span(p, approvalMost, &a.Expires)
		}
	})
	return a
}

// retryEnds are the ends that can be retried after.
func retryEnds() []string { return []string{RetryInfrastructure, RetryFailure, RetryTimeout} }

func (d *decoder) retry(p pair) *Retry {
	d.use(FeatureRetry, p.at)
	r := &Retry{On: []string{RetryInfrastructure}}
	d.object(p.value, `"retry"`, retryKeys(), func(p pair) {
		switch p.key {
		case "max":
			d.int(p.key, p.at, p.value, 0, retryMost, &r.Max)
		case "on":
			r.On = nil
			d.texts(p.key, p.at, p.value, len(retryEnds()), func(n *node, s string) {
				one := ""
				if d.choice(pair{p.key, p.at, n}, retryEnds(), "what an attempt is repeated after is", &one); one != "" && !slices.Contains(r.On, one) {
					r.On = append(r.On, one)
				}
			})
			if p.value.kind == sequence && len(p.value.items) == 0 {
				d.err(p.value.at, codeRequired, "on: [infrastructure], or remove retry", `"on" is empty`)
			}
		}
	})
	return r
}

// secrets reads a list of names, which may be empty.
func (d *decoder) secrets(p pair) Secrets {
	d.use(FeatureSecrets, p.at)
	out := Secrets{Only: true}
	d.texts(p.key, p.at, p.value, d.lim.List, func(n *node, s string) {
		switch {
		case !variable.MatchString(s) || len(s) > secretLimit:
			d.err(n.at, codeValue, "use letters, digits and _ only, not starting with a digit, at most 50", "%s cannot name a secret", quoted(s))
		case !slices.Contains(out.Names, s):
			out.Names = append(out.Names, s)
		}
	})
	return out
}

// choice reads one of the words known. what begins the sentence that lists them.
func (d *decoder) choice(p pair, known []string, what string, into *string) {
	s := d.word(p.key, p.at, p.value, nameLimit)
	switch {
	case s == "":
	case slices.Contains(known, s):
		*into = s
	default:
		fix := "write one of " + list(known)
		w, alone := nearestAlone(s, known)
		if w != "" {
			fix = "write " + w
		}
		d.err(p.value.at, codeValue, fix, "%s %s, this is %s%s", what, or(known), quoted(s), didYouMean(s, known))
		if alone {
			d.mend(p.value.at, s, w)
		}
	}
}
