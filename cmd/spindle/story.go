package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"spindle/devnet"
	"spindle/devnet/world"
	"spindle/lexicons/orgtangled"
)

// storyOptions say how the story is told.
type storyOptions struct {
	// check makes every act check what it shows beyond what the story itself needs.
	check bool
	// ask waits for a key before approving.
	ask   bool
	began time.Time
}

// actTime bounds one act. It is generous: a slow machine is not a failed act.
const actTime = 3 * time.Minute

// story tells the three acts. It returns an error that names the act which did not hold.
func story(ctx context.Context, w *world.World, t *teller, o storyOptions) error {
	t.network(w, o.began)
	hello, err := w.Hello(ctx)
	if err != nil {
		return err
	}
	t.clone(hello.NamedURL())
	t.say("")
	s := &acts{w: w, t: t, o: o, hello: hello, alice: w.Client(w.Owner)}
	for i, act := range []struct {
		name string
		do   func(context.Context) error
	}{{"green", s.green}, {"red, then fixed", s.red}, {"a stranger's pull request", s.stranger}} {
		if err := s.bounded(ctx, act.do); err != nil {
			return fmt.Errorf("act %d (%s): %w", i+1, act.name, err)
		}
	}
	if o.check {
		if err := s.bounded(ctx, s.everywhere); err != nil {
			return fmt.Errorf("after the acts: %w", err)
		}
		t.say("  all acts held   %.1f s", time.Since(o.began).Seconds())
	}
	return nil
}

// acts is what the acts share.
type acts struct {
	w     *world.World
	t     *teller
	o     storyOptions
	hello *devnet.Repo
	alice *world.Client
	// texts is everything that was read of logs and answers, for the search for secrets.
	mu    sync.Mutex
	texts strings.Builder
}

func (s *acts) bounded(ctx context.Context, act func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	return act(ctx)
}

// green is the main job: a push, a pipeline, a log that streams, and a secret that nobody sees.
func (s *acts) green(ctx context.Context) error {
	repo := s.hello.DID.String()
	if err := s.alice.PutSecret(ctx, repo, world.Secret, world.SecretValue); err != nil {
		return fmt.Errorf("set a secret: %w", err)
	}
	s.t.say("1/3 green    alice sets the secret %s and pushes three workflows", world.Secret)
	p, err := s.push(ctx, "push main", devnet.Change{Message: "greet the cats", Files: world.HelloFiles()}, "test")
	if err != nil {
		return err
	}
	if err := states(p, "passed", map[string]string{"lint": "passed", "test": "passed", "deploy": "passed"}); err != nil {
		return err
	}
	s.t.say("")
	return s.logHas(ctx, p, "deploy", "releasing with the token ***", "passed")
}

// red breaks a test and mends it.
func (s *acts) red(ctx context.Context) error {
	s.t.say("2/3 red      alice breaks the plural")
	p, err := s.push(ctx, "push main", devnet.Change{Message: "one word for all", Files: world.Broken()}, "")
	if err != nil {
		return err
	}
	if err := states(p, "failed", map[string]string{"lint": "passed", "test": "failed", "deploy": "passed"}); err != nil {
		return err
	}
	for _, wf := range p.Workflows {
		if wf.Reason != nil && wf.State != nil && *wf.State == "failed" {
			s.t.say("             ✗ %s: %s   %s/p/%s/%s", wf.Name, *wf.Reason, s.w.URL, p.Id, wf.Id)
		}
	}
	s.t.say("             … and mends it")
	if p, err = s.push(ctx, "push main", devnet.Change{Message: "greet: fix the plural", Files: world.Fixed()}, ""); err != nil {
		return err
	}
	s.t.say("")
	return states(p, "passed", map[string]string{"lint": "passed", "test": "passed", "deploy": "passed"})
}

// stranger opens a pull request from a fork: it waits for an approval, and gets no secret even then.
func (s *acts) stranger(ctx context.Context) error {
	bob, err := s.w.Net.CreateAccount(ctx, "bob.test")
	if err != nil {
		return fmt.Errorf("make bob's account: %w", err)
	}
	fork, err := s.w.Net.Fork(ctx, bob, s.hello, devnet.RepoOptions{})
	if err != nil {
		return fmt.Errorf("fork: %w", err)
	}
	pushed, err := fork.Push(ctx, devnet.Change{
		As: bob, Branch: "dogs", Message: "greet the dogs as well",
		Files: map[string]string{"dogs.sh": "#!/bin/sh\necho \"and $1 dogs\"\n"},
	})
	if err != nil {
		return fmt.Errorf("push to the fork: %w", err)
	}
	if _, err := s.w.Net.OpenPull(ctx, bob, s.hello, fork, devnet.PullOptions{Title: "Dogs too", Branch: "dogs"}); err != nil {
		return fmt.Errorf("open a pull request: %w", err)
	}
	s.t.say("3/3 fork     bob, a stranger, opens a pull request from his fork")
	repo := s.hello.DID.String()
	held, err := s.alice.Await(ctx, repo, pushed.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
	if err != nil {
		return err
	}
	if err := states(held, "held", nil); err != nil {
		return err
	}
	s.t.say("             ⏸ waiting for approval: code from outside; secrets are withheld   %s/p/%s", s.w.URL, held.Id)
	if err := s.w.Client(bob).Approve(ctx, repo, held.Id); err == nil {
		return errors.New("the stranger could approve his own run")
	}
	if s.o.ask {
		s.t.say("             press a and Enter to approve as alice")
		if err := waitKey(ctx, os.Stdin, 'a'); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := s.alice.Approve(ctx, repo, held.Id); err != nil {
		return fmt.Errorf("approve: %w", err)
	}
	s.t.say("             alice approves")
	p, err := s.alice.Await(ctx, repo, pushed.SHA, world.Ended)
	if err != nil {
		return err
	}
	s.t.result("pull request", pushed.SHA, p, time.Since(began))
	if err := states(p, "passed", nil); err != nil {
		return err
	}
	s.t.say("             its deploy step says: no token here: nothing is released")
	return s.logHas(ctx, p, "deploy", "no token here: nothing is released", "passed")
}

// push makes and pushes a commit and waits for its pipeline's end, showing the log of the workflow named.
func (s *acts) push(ctx context.Context, what string, c devnet.Change, show string) (*orgtangled.CiDefs_Pipeline, error) {
	began := time.Now()
	pushed, err := s.hello.Push(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	s.note(pushed.Output)
	if s.o.check && !strings.Contains(pushed.Output, "remote: ") {
		return nil, fmt.Errorf("the pusher was told nothing: %q", pushed.Output)
	}
	repo := s.hello.DID.String()
	p, err := s.alice.Await(ctx, repo, pushed.SHA, func(p *orgtangled.CiDefs_Pipeline) bool { return world.State(p) != "" })
	if err != nil {
		return nil, err
	}
	if show != "" {
		s.t.say("             git push said:")
		for _, l := range strings.Split(strings.TrimSpace(pushed.Output), "\n") {
			if r, ok := strings.CutPrefix(l, "remote: "); ok && strings.TrimSpace(r) != "" {
				s.t.say("               remote: %s", strings.TrimRight(r, " "))
			}
		}
		if err := s.alice.Follow(ctx, repo, p.Id, func(e world.Entry) { s.show(show, e) }); err != nil {
			return nil, err
		}
	}
	if p, err = s.alice.Await(ctx, repo, pushed.SHA, world.Ended); err != nil {
		return nil, err
	}
	s.t.result(what, pushed.SHA, p, time.Since(began))
	return p, nil
}

// show prints an entry of the log as it streams.
func (s *acts) show(workflow string, e world.Entry) {
	switch {
	case e.Data != nil && e.Data.Workflow == workflow:
		s.t.say("             %s │ %s", workflow, strings.TrimRight(e.Data.Content, "\n"))
	case e.Control != nil && e.Control.Workflow == workflow && e.Control.Status != nil && *e.Control.Status == "start":
		s.t.say("             %s ┌ %s", workflow, e.Control.Content)
	}
	if e.Data != nil {
		s.note(e.Data.Content)
	}
}

func (s *acts) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts.WriteString(text)
}

// logHas checks that a workflow's log, read through its stream, has a text; and, when checking, that the
// pipeline's page shows how it ended.
func (s *acts) logHas(ctx context.Context, p *orgtangled.CiDefs_Pipeline, workflow, want, state string) error {
	var log strings.Builder
	err := s.alice.Follow(ctx, s.hello.DID.String(), p.Id, func(e world.Entry) {
		if e.Data != nil && e.Data.Workflow == workflow {
			log.WriteString(e.Data.Content)
		}
	})
	if err != nil {
		return err
	}
	s.note(log.String())
	if !strings.Contains(log.String(), want) {
		return fmt.Errorf("the log of %s does not say %q; it says: %s", workflow, want, log.String())
	}
	if !s.o.check {
		return nil
	}
	for _, path := range []string{"/p/" + p.Id, "/p/" + p.Id + "/" + workflow, "/"} {
		page, err := s.alice.Get(ctx, path)
		if err != nil {
			return fmt.Errorf("page %s: %w", path, err)
		}
		s.note(page)
		if !strings.Contains(page, state) {
			return fmt.Errorf("page %s does not say %q", path, state)
		}
	}
	return nil
}

// everywhere checks what must hold of the whole: the secret is nowhere, the identity documents are there.
func (s *acts) everywhere(ctx context.Context) error {
	s.mu.Lock()
	all := s.texts.String()
	s.mu.Unlock()
	if strings.Contains(all, world.SecretValue) {
		return errors.New("the secret's value appears in what was read of logs, pages and answers")
	}
	for _, path := range []string{"/.well-known/did.json", "/.well-known/openid-configuration", "/_health"} {
		if _, err := s.alice.Get(ctx, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// states checks a pipeline's state and those of the workflows named.
func states(p *orgtangled.CiDefs_Pipeline, want string, workflows map[string]string) error {
	if got := world.State(p); got != want {
		return fmt.Errorf("pipeline %s is %s instead of %s%s", p.Id, got, want, reasons(p))
	}
	for _, wf := range p.Workflows {
		if w, ok := workflows[wf.Id]; ok && (wf.State == nil || *wf.State != w) {
			return fmt.Errorf("workflow %s is %v instead of %s%s", wf.Id, symbol(wf.State), w, reasons(p))
		}
	}
	return nil
}

func reasons(p *orgtangled.CiDefs_Pipeline) string {
	var b strings.Builder
	for _, wf := range p.Workflows {
		if wf.Reason != nil {
			fmt.Fprintf(&b, "; %s: %s", wf.Id, *wf.Reason)
		}
	}
	return b.String()
}
