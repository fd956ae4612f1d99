package xrpc

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"spindle/lexicons/orgtangled"
	"spindle/pipeline"
)

// The lengths, in bytes, that the lexicons give to free text. Longer text is cut, so that an answer always
// obeys its lexicon.
const (
	maxTitle   = 1024
	maxReason  = 4096
	maxCommand = 65536
)

// maxNext bounds the due times that are told of one workflow.
const maxNext = 100

// clip cuts s to n bytes at the border of a character.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// opt is a pointer to s, or nil for "".
func opt(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// optTime is the timestamp of t, or nil for the zero time.
func optTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	return opt(timestamp(t))
}

// optInt is a pointer to n.
func optInt(n int) *int64 {
	v := int64(n)
	return &v
}

// pipelineView is p as callers see it; steps only when asked for.
func pipelineView(p pipeline.Pipeline, steps bool) *orgtangled.CiDefs_Pipeline {
	v := &orgtangled.CiDefs_Pipeline{
		Id:         string(p.ID),
		Repo:       opt(p.Repo),
		Trigger:    triggerView(p.Trigger),
		Commit:     p.Trigger.Commit,
		Ref:        opt(p.Trigger.Ref),
		Title:      opt(clip(p.Title, maxTitle)),
		Actor:      opt(p.Trigger.Actor),
		Status:     opt(p.Status.Wire()),
		State:      opt(string(p.Status)),
		Reason:     opt(clip(p.Note, maxReason)),
		Trust:      opt(p.Trust.String()),
		ApprovedBy: opt(p.ApprovedBy),
		RetryOf:    opt(string(p.Trigger.RetryOf)),
		CreatedAt:  optTime(p.CreatedAt),
		FinishedAt: optTime(p.FinishedAt),
		Workflows:  make([]*orgtangled.CiDefs_Workflow, 0, len(p.Workflows)),
	}
	if code := p.Trigger.CodeRepo(); code != p.Repo {
		v.SourceRepo = opt(code)
	}
	var started time.Time
	for _, w := range p.Workflows {
		if !w.StartedAt.IsZero() && (started.IsZero() || w.StartedAt.Before(started)) {
			started = w.StartedAt
		}
		v.Workflows = append(v.Workflows, workflowView(w, steps))
	}
	v.StartedAt = optTime(started)
	slices.SortFunc(v.Workflows, func(a, b *orgtangled.CiDefs_Workflow) int { return cmp.Compare(a.Id, b.Id) })
	return v
}

func workflowView(w pipeline.Workflow, steps bool) *orgtangled.CiDefs_Workflow {
	v := &orgtangled.CiDefs_Workflow{
		Id:         w.Name,
		Name:       w.Name,
		Path:       opt(w.File),
		Engine:     opt(w.Engine),
		Status:     w.Status.Wire(),
		State:      opt(string(w.Status)),
		Reason:     opt(clip(w.Reason, maxReason)),
		Gate:       opt(string(w.Gate)),
		WaitsFor:   w.Rules.WaitsFor,
		ExpiresAt:  optTime(w.HeldUntil),
		DeploysTo:  opt(w.Rules.DeploysTo),
		Attempt:    optInt(w.Attempt),
		CreatedAt:  optTime(w.CreatedAt),
		StartedAt:  optTime(w.StartedAt),
		FinishedAt: optTime(w.FinishedAt),
	}
	if w.Status.Terminal() && !w.Status.Good() {
		v.Error = v.Reason
	}
	if w.Status == pipeline.Passed || w.Status == pipeline.Failed {
		v.ExitCode = optInt(w.ExitCode)
	}
	if steps {
		for _, st := range w.Steps {
			v.Steps = append(v.Steps, stepView(st))
		}
	}
	return v
}

func stepView(st pipeline.Step) *orgtangled.CiDefs_Step {
	v := &orgtangled.CiDefs_Step{
		Index:      int64(st.Index),
		Name:       clip(st.Name, maxTitle),
		Command:    opt(clip(st.Command, maxCommand)),
		Kind:       opt(string(st.Kind)),
		Status:     st.Status.Wire(),
		State:      opt(string(st.Status)),
		Reason:     opt(clip(st.Reason, maxReason)),
		StartedAt:  optTime(st.StartedAt),
		FinishedAt: optTime(st.FinishedAt),
	}
	if st.Status == pipeline.Passed || st.Status == pipeline.Failed {
		v.ExitCode = optInt(st.ExitCode)
	}
	return v
}

// zeros stands for "nothing" where a commit is asked for.
const zeros = "0000000000000000000000000000000000000000"

// triggerView is why a pipeline runs.
func triggerView(t pipeline.Trigger) *orgtangled.CiDefs_Pipeline_Trigger {
	switch t.Kind {
	case pipeline.PullRequest:
		v := &orgtangled.EventPullRequest{Repo: opt(t.Repo), Actor: opt(t.Actor)}
		if p := t.Pull; p != nil {
			v.Ticket, v.Patch, v.Action = opt(p.Ticket), opt(p.Round), opt(p.Action)
			v.SourceRepo, v.SourceBranch, v.TargetBranch = opt(p.SourceRepo), opt(p.SourceBranch), opt(p.TargetBranch)
			v.BaseSha, v.SourceSha = opt(p.Base), opt(p.Head)
		}
		return &orgtangled.CiDefs_Pipeline_Trigger{EventPullRequest: v}
	case pipeline.Manual:
		v := &orgtangled.CiTriggerManual{Repo: t.Repo, Commit: t.Commit, Ref: opt(t.Ref), Workflows: t.Only}
		for _, in := range t.Inputs {
			v.Inputs = append(v.Inputs, &orgtangled.CiTriggerManual_Input{Key: in.Key, Value: in.Value})
		}
		return &orgtangled.CiDefs_Pipeline_Trigger{CiTriggerManual: v}
	case pipeline.Schedule:
		return &orgtangled.CiDefs_Pipeline_Trigger{CiTriggerSchedule: &orgtangled.CiTriggerSchedule{Ref: opt(t.Ref), Due: optTime(t.At)}}
	}
	return &orgtangled.CiDefs_Pipeline_Trigger{EventPush: &orgtangled.EventPush{
		Repo: t.Repo, Ref: t.Ref, OldSha: cmp.Or(t.Old, zeros), NewSha: t.Commit, Actor: opt(t.Actor), PushOptions: t.Options,
	}}
}

// definitionView is one workflow file as callers see it.
func definitionView(d Definition) *orgtangled.CiDefs_WorkflowDefinition {
	v := &orgtangled.CiDefs_WorkflowDefinition{
		Id: d.Name, Name: opt(d.Title), Hash: opt(d.Hash), Engine: opt(d.Engine), Triggers: d.Triggers,
		Source: &orgtangled.CiDefs_WorkflowDefinition_Source{CiDefs_FileSource: &orgtangled.CiDefs_FileSource{Path: d.Path, Commit: opt(d.Commit)}},
	}
	if v.Triggers == nil {
		v.Triggers = []string{}
	}
	for _, t := range d.Next[:min(len(d.Next), maxNext)] {
		v.NextRuns = append(v.NextRuns, timestamp(t))
	}
	for _, g := range d.Diagnostics {
		x := &orgtangled.CiDefs_Diagnostic{
			Severity: g.Severity, Code: opt(g.Code), Message: clip(g.Message, maxReason), Hint: opt(clip(g.Hint, maxReason)), Path: opt(d.Path),
		}
		if g.Line > 0 {
			x.Line = optInt(g.Line)
		}
		if g.Column > 0 {
			x.Column = optInt(g.Column)
		}
		v.Diagnostics = append(v.Diagnostics, x)
	}
	return v
}
