package sandbox

import (
	"context"
	"strings"

	"spindle/engines"
)

// view is what the attempt that s describes will see, held until release is called.
func (e *Engine) view(ctx context.Context, s engines.Spec) (v *view, release func(), err error) {
	if s.Image == "" || s.Image == engines.ImageHost {
		return e.host, func() {}, nil
	}
	img, err := e.cfg.Images.Acquire(ctx, engines.ImageRequest{Name: s.Image, Untrusted: s.Untrusted, Progress: s.Progress})
	if err != nil {
		return nil, nil, err
	}
	v = &view{root: img.Root, env: img.Env, bash: img.Bash, uid: img.UID, gid: img.GID, user: img.User}
	for _, kv := range img.Env {
		if p, ok := strings.CutPrefix(kv, "PATH="); ok {
			v.path = p
		}
	}
	if !img.Git {
		if m, ok := e.kit.mount(e.cfg.StateDir, e.cfg.Log); ok {
			v.mounts = append(v.mounts, m)
			v.path += ":" + kitDir
		}
	}
	return v, img.Release, nil
}
