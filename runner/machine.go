package runner

import "spindle/workflow"

// packages are a file's dependencies as engines take them: by registry, a plain list under "".
func packages(d workflow.Dependencies) map[string][]string {
	out := map[string][]string{}
	if len(d.Packages) > 0 {
		out[""] = d.Packages
	}
	for _, r := range d.Registries {
		out[r.Name] = append(out[r.Name], r.Packages...)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// needs names the keys of a file that only some machines have. They are shown to whoever wrote them.
func needs(m *workflow.MicrovmSpec) []string {
	if m == nil {
		return nil
	}
	var out []string
	for _, n := range []struct {
		key string
		set bool
	}{
		{"registry", len(m.Registry) > 0}, {"substituters", len(m.Substituters) > 0},
		{"services", len(m.Services) > 0}, {"virtualisation", len(m.Virtualisation) > 0},
	} {
		if n.set {
			out = append(out, n.key)
		}
	}
	return out
}
