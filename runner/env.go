package runner

import (
	"slices"
	"strings"

	"spindle/pipeline"
	"spindle/workflow"
)

// frameworkEnv is what every step is told about its run, in the names that workflows of the network rely
// on. Names that would carry an unknown value are left out. TANGLED_REPO_* is the repository whose workflows
// run, also for a pull request from a fork.
func frameworkEnv(p pipeline.Pipeline, repoURL, rkey string) []string {
	t := p.Trigger
	env := []string{"CI=true"}
	add := func(name, value string) {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	add("TANGLED_PIPELINE_ID", string(p.ID))
	add("TANGLED_PIPELINE_KIND", string(t.Kind))
	add("TANGLED_REPO_DID", p.Owner)
	add("TANGLED_REPO_REPO_DID", p.Repo)
	add("TANGLED_REPO_KNOT", p.Knot)
	add("TANGLED_REPO_NAME", rkey)
	add("TANGLED_REPO_URL", repoURL)
	add("TANGLED_REPO_DEFAULT_BRANCH", p.DefaultBranch)
	add("TANGLED_SHA", t.Commit)
	add("TANGLED_COMMIT_SHA", t.Commit)
	if t.Pull != nil {
		add("TANGLED_PR_SOURCE_BRANCH", t.Pull.SourceBranch)
		add("TANGLED_PR_TARGET_BRANCH", t.Pull.TargetBranch)
		add("TANGLED_PR_SOURCE_SHA", t.Pull.Head)
		add("TANGLED_PR_ACTION", t.Pull.Action)
		if t.Pull.SourceBranch != "" {
			add("TANGLED_REF", "refs/heads/"+t.Pull.SourceBranch)
			add("TANGLED_REF_NAME", t.Pull.SourceBranch)
			add("TANGLED_REF_TYPE", "branch")
		}
	} else if t.Ref != "" {
		add("TANGLED_REF", t.Ref)
		add("TANGLED_REF_NAME", t.RefName())
		add("TANGLED_REF_TYPE", t.RefType())
	}
	for _, in := range t.Inputs {
		env = append(env, inputs([]workflow.Env{{Key: in.Key, Value: in.Value}})...)
	}
	return env
}

// inputs are variables for the values of inputs; a key that has no letter or digit gets none.
func inputs(given []workflow.Env) []string {
	var out []string
	for _, in := range given {
		name := workflow.InputVariable(in.Key)
		if strings.Trim(strings.TrimPrefix(name, "TANGLED_INPUT_"), "_") != "" {
			out = append(out, name+"="+in.Value)
		}
	}
	return out
}

// merge lays layers of "NAME=value" over one another: a later layer wins. The framework's own names win over
// a workflow's, so that a workflow cannot tell its steps a false commit.
func merge(layers ...[]string) []string {
	at := map[string]int{}
	var out []string
	for _, layer := range layers {
		for _, kv := range layer {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || name == "" {
				continue
			}
			if i, seen := at[name]; seen {
				out[i] = kv
				continue
			}
			at[name] = len(out)
			out = append(out, kv)
		}
	}
	return out
}

func pairs(env []workflow.Env) []string {
	out := make([]string, 0, len(env))
	for _, e := range env {
		out = append(out, e.Key+"="+e.Value)
	}
	return out
}

// secretEnv are the secrets that are chosen.
func secretEnv(values map[string]string, chosen workflow.Secrets) []string {
	out := make([]string, 0, len(values))
	for k, v := range values {
		if chosen.Has(k) {
			out = append(out, k+"="+v)
		}
	}
	slices.Sort(out)
	return out
}
