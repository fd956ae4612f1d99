package enginetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"spindle/engines"
)

// Suite is an engine under test.
type Suite struct {
	// Engine is shared by all tests of the suite.
	Engine engines.Engine
	// Machine says that attempts have a shell, files and processes of their own.
	Machine bool
	// Without names the tests that an engine cannot pass by its nature, such as those of walls in one that has none.
	Without []string
	// Image is what attempts run in; empty is the engine's default.
	Image string
	// OwnTools says that the image's tools belong to each attempt, whose root may change them for itself.
	OwnTools bool
	// Left lists what the engine still holds on this machine for attempts (processes, files). It is asked when
	// every attempt is closed, and must then be empty. nil is not asked.
	Left func() ([]string, error)
}

// Prompt is how soon a stopped command must have been dealt with. It is generous, because test machines are busy.
const Prompt = 20 * time.Second

// Run puts the engine through the suite.
func Run(t *testing.T, s Suite) {
	t.Run("attempts", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, Suite){
			"Order":          testOrder,
			"ExitCodes":      testExitCodes,
			"Streams":        testStreams,
			"Env":            testEnv,
			"Timeout":        testTimeout,
			"Cancel":         testCancel,
			"CancelEarly":    testCancelEarly,
			"CloseStops":     testCloseStops,
			"CloseTwice":     testCloseTwice,
			"UnknownImage":   testUnknownImage,
			"BadSpec":        testBadSpec,
			"DuplicateID":    testDuplicateID,
			"Concurrent":     testConcurrent,
			"WriterFails":    testWriterFails,
			"OutputIsLive":   testOutputIsLive,
			"EndedIsInOrder": testTimes,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t, s) })
		}
		if !s.Machine {
			return
		}
		for name, test := range machineTests {
			if slices.Contains(s.Without, name) {
				continue
			}
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t, s) })
		}
	})
	if s.Left != nil {
		left, err := s.Left()
		require.NoError(t, err)
		require.Empty(t, left, "left on the machine after every attempt was closed")
	}
}

// open opens an attempt that is closed with the test.
func open(t *testing.T, s Suite, change ...func(*engines.Spec)) engines.Attempt {
	t.Helper()
	spec := engines.Spec{ID: id(t), Image: s.Image}
	for _, f := range change {
		f(&spec)
	}
	a, err := s.Engine.Open(t.Context(), spec)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*Prompt)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return a
}

// id is the test's name as an attempt's.
func id(t *testing.T) string {
	name := strings.NewReplacer("/", ".", "#", "-").Replace(t.Name())
	return name[max(0, len(name)-60):][strings.IndexFunc(name[max(0, len(name)-60):], isAlnum):]
}

func isAlnum(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
}

// ran is what a command did.
type ran struct {
	engines.Result
	out, err string
}

// run runs a script that the machinery must not stumble over.
func run(t *testing.T, a engines.Attempt, script string, change ...func(*engines.Command)) ran {
	t.Helper()
	var out, errs bytes.Buffer
	c := engines.Command{Script: script, Stdout: &out, Stderr: &errs}
	for _, f := range change {
		f(&c)
	}
	res, err := a.Run(t.Context(), c)
	require.NoError(t, err, "stdout %q stderr %q", out.String(), errs.String())
	return ran{res, out.String(), errs.String()}
}

// signal is a writer that says when something was written that holds want.
type signal struct {
	want string
	seen chan struct{}
	buf  strings.Builder
}

func newSignal(want string) *signal { return &signal{want: want, seen: make(chan struct{})} }

func (s *signal) Write(b []byte) (int, error) {
	before := strings.Contains(s.buf.String(), s.want)
	s.buf.Write(b)
	if !before && strings.Contains(s.buf.String(), s.want) {
		close(s.seen)
	}
	return len(b), nil
}

// wait fails the test when nothing comes.
func wait(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(Prompt):
		t.Fatalf("waited %s for %s", Prompt, what)
	}
}

// within fails when a stopped command took longer than Prompt.
func within(t *testing.T, since time.Time) {
	t.Helper()
	require.Less(t, time.Since(since), Prompt, "stopping took too long")
}

// stopped checks the result of a killed command, and that the attempt takes no more of them.
func stopped(t *testing.T, a engines.Attempt, res engines.Result, err error, why engines.Killed) {
	t.Helper()
	require.NoError(t, err)
	require.Equal(t, why, res.Killed)
	require.Equal(t, -1, res.ExitCode)
	_, err = a.Run(t.Context(), engines.Command{Script: "true"})
	require.ErrorIs(t, err, engines.ErrOver)
	publicOnly(t, err)
}

// publicOnly checks that the sentence for users tells nothing of the server.
func publicOnly(t *testing.T, err error) {
	t.Helper()
	var e *engines.Error
	require.ErrorAs(t, err, &e, "errors of engines have a public sentence")
	require.NotEmpty(t, e.Public)
	require.NotContains(t, e.Public, "/", "a public sentence names no path")
	require.NotContains(t, e.Public, fmt.Sprint(e.Err), "a public sentence is not the detail")
}
