package trigger

import (
	"path"
	"slices"
	"strings"
	"time"

	"spindle/knot"
	"spindle/pipeline"
	"spindle/store"
	"spindle/workflow"
)

// timetable lists the time tables of the files of a repository, due after now. A file that cannot be read has none, and
// what is beyond the bound of the store is left out.
func timetable(repo string, files knot.Files, lim workflow.Limits, now time.Time) []store.Schedule {
	var out []store.Schedule
	for _, f := range files.Files {
		if !strings.Contains(string(f.Data), "schedule") {
			continue
		}
		spec, _ := workflow.Parse(f.Path, f.Data, lim)
		if spec == nil {
			continue
		}
		name := stem(f.Path)
		for _, c := range spec.When {
			if !slices.Contains(c.Event, string(pipeline.Schedule)) {
				continue
			}
			for _, s := range c.Schedule {
				x := store.Schedule{Repo: repo, Workflow: name, Cron: s.Cron, Zone: s.Timezone}
				x.Next = next(x, now)
				if out = append(out, x); len(out) == store.MaxSchedules {
					return out
				}
			}
		}
	}
	return out
}

// NextDue is when the time tables of the workflow in the file called name, of repo, are due next: one time each, the
// nearest first.
func NextDue(repo, name string, spec *workflow.Spec, now time.Time) []time.Time {
	var out []time.Time
	for _, c := range spec.When {
		if !slices.Contains(c.Event, string(pipeline.Schedule)) {
			continue
		}
		for _, s := range c.Schedule {
			if t := next(store.Schedule{Repo: repo, Workflow: stem(name), Cron: s.Cron, Zone: s.Timezone}, now); !t.IsZero() {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}

// stem is the name of a workflow, from the path of its file.
func stem(file string) string { return strings.TrimSuffix(path.Base(file), path.Ext(file)) }

// next is the first due time of x after t, or zero. The seed of H spreads repositories and workflows.
func next(x store.Schedule, t time.Time) time.Time {
	n := workflow.Schedule{Cron: x.Cron, Timezone: x.Zone}.Next(x.Repo+"/"+x.Workflow, t)
	if n.IsZero() {
		return n
	}
	return n.UTC()
}

// newest is the last due time of x at or before now and not before x.Next, which is due. What was missed before it is
// not made up for. The windows bound the work, however long x was not looked at.
func newest(x store.Schedule, now time.Time) time.Time {
	const day = 24 * time.Hour
	for _, window := range []time.Duration{time.Hour, day, 32 * day, 366 * day} {
		from := now.Add(-window)
		if from.Before(x.Next) {
			break
		}
		last := time.Time{}
		for t := next(x, from); !t.IsZero() && !t.After(now); t = next(x, t) {
			last = t
		}
		if !last.IsZero() {
			return last
		}
	}
	last := x.Next
	for t := next(x, last); !t.IsZero() && !t.After(now); t = next(x, t) {
		last = t
	}
	return last
}
