package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStartIsRefusedWithTheFix shows that a server which should not run says why and what to do, and does not.
func TestStartIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	b := newBed(t)

	open := filepath.Join(b.dir, "open-key")
	key, err := os.ReadFile(filepath.Join(b.dir, "key"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(open, key, 0o600))
	require.NoError(t, os.Chmod(open, 0o644))
	bad := filepath.Join(b.dir, "bad-key")
	require.NoError(t, os.WriteFile(bad, []byte("not a key, but sEcReT\n"), 0o600))
	old := filepath.Join(b.dir, "git-old")
	require.NoError(t, os.WriteFile(old, []byte("#!/bin/sh\necho git version 2.30.2\n"), 0o700))
	notGit := filepath.Join(b.dir, "git-not")
	require.NoError(t, os.WriteFile(notGit, []byte("#!/bin/sh\necho hello\n"), 0o700))
	rubbish := filepath.Join(b.dir, "rubbish.db")
	require.NoError(t, os.WriteFile(rubbish, []byte("this is no database, it is a text of some length to be sure"), 0o600))

	for _, c := range []struct {
		name string
		set  []string
		code int
		says []string
	}{
		{"an unknown setting", []string{"SPINDLE_SERVER_HOSTNAM=x"}, exitUsage, []string{"SPINDLE_SERVER_HOSTNAM", "did you mean SPINDLE_SERVER_HOSTNAME"}},
		{"no owner", []string{"SPINDLE_SERVER_OWNER="}, exitUsage, []string{"SPINDLE_SERVER_OWNER", "set it to your DID"}},
		{"an owner that is no DID", []string{"SPINDLE_SERVER_OWNER=alice"}, exitUsage, []string{"alice", "DID"}},
		{"a number that is none", []string{"SPINDLE_SERVER_MAX_JOB_COUNT=many"}, exitUsage, []string{"SPINDLE_SERVER_MAX_JOB_COUNT"}},
		{"no seat", []string{"SPINDLE_SERVER_MAX_JOB_COUNT=0"}, exitUsage, []string{"SPINDLE_SERVER_MAX_JOB_COUNT", "at least 1"}},
		{"an admission that is none", []string{"SPINDLE_SERVER_ADMISSION=maybe"}, exitUsage, []string{"maybe", "closed"}},
		{"a member that is no DID", []string{"SPINDLE_SERVER_MEMBERS=bob"}, exitUsage, []string{"bob", "DID"}},
		{"a banned owner", []string{"SPINDLE_SERVER_BANNED=" + b.alice.DID.String()}, exitUsage, []string{b.alice.DID.String(), "banned"}},
		{"a proxy that is none", []string{"SPINDLE_SERVER_TRUSTED_PROXIES=proxy"}, exitUsage, []string{"SPINDLE_SERVER_TRUSTED_PROXIES", "10.0.0.0/8"}},
		{"one key for two purposes", []string{"SPINDLE_OIDC_KEY_PATH=" + filepath.Join(b.dir, "key")}, exitEnv, []string{"token"}},
		{"the owner of an example", []string{"SPINDLE_SERVER_OWNER=did:plc:your-did"}, exitUsage, []string{"did:plc:your-did"}},
		{"a directory without a scheme", []string{"SPINDLE_SERVER_PLC_URL=plc.directory"}, exitUsage, []string{"SPINDLE_SERVER_PLC_URL", "https://"}},
		{"a stream without a scheme", []string{"SPINDLE_SERVER_JETSTREAM_ENDPOINT=https://x"}, exitUsage, []string{"SPINDLE_SERVER_JETSTREAM_ENDPOINT", "wss://"}},
		{"a name in capitals", []string{"SPINDLE_SERVER_HOSTNAME=CI.example.com"}, exitUsage, []string{"SPINDLE_SERVER_HOSTNAME", "lower case"}},
		{"a limit above the limit", []string{"SPINDLE_WORKFLOW_TIMEOUT=2h"}, exitUsage, []string{"SPINDLE_WORKFLOW_TIMEOUT", "SPINDLE_WORKFLOW_MAX_TIMEOUT"}},
		{"a key that others can read", []string{"SPINDLE_SERVER_KEY_PATH=" + open}, exitEnv, []string{"open-key", "chmod 600"}},
		{"a key that is missing", []string{"SPINDLE_SERVER_KEY_PATH=" + open + "x"}, exitEnv, []string{"open-keyx", "spindle key generate"}},
		{"a key that is none", []string{"SPINDLE_SERVER_KEY_PATH=" + bad}, exitEnv, []string{"bad-key"}},
		{"an old git", []string{"SPINDLE_SERVER_GIT_PATH=" + old}, exitEnv, []string{"2.30.2", "2.39"}},
		{"a git that is none", []string{"SPINDLE_SERVER_GIT_PATH=" + notGit}, exitEnv, []string{"git-not"}},
		{"a git that is missing", []string{"SPINDLE_SERVER_GIT_PATH=" + old + "x"}, exitEnv, []string{"git-oldx"}},
		{"a database that is none", []string{"SPINDLE_SERVER_DB_PATH=" + rubbish}, exitEnv, []string{"rubbish.db"}},
		{"a worker", []string{"SPINDLE_ROLE=executor"}, exitUsage, []string{"SPINDLE_ROLE", "standalone"}},
		{"hosts without dev", []string{"SPINDLE_SERVER_DEV=false"}, exitUsage, []string{"SPINDLE_SERVER_DEV_EXTRA_HOSTS"}},
	} {
		code, said := b.refused(c.set...)
		require.NotZero(t, code, "%s:\n%s", c.name, said)
		if c.code != 0 {
			require.Equal(t, c.code, code, "%s:\n%s", c.name, said)
		}
		for _, w := range c.says {
			require.Contains(t, said, w, c.name)
		}
		require.NotContains(t, said, "sEcReT", c.name)
		require.NotContains(t, said, "panic", c.name)
		require.NotContains(t, said, "goroutine ", c.name)
	}
	text, err := os.ReadFile(rubbish)
	require.NoError(t, err)
	require.Contains(t, string(text), "this is no database", "a file that is not ours is left as it was")

	s := b.serve()
	defer s.kill()
	code, said := b.refused("SPINDLE_SERVER_LISTEN_ADDR=" + freeAddr(t))
	require.Equal(t, exitEnv, code, said)
	require.Contains(t, said, "is used by pid")
	require.Contains(t, said, "stop that one first")
}

// TestCommandLine is what a person sees who mistypes.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	code, out := exit(t, nil, "--help")
	require.Zero(t, code)
	for _, w := range []string{"demo", "dev", "serve", "key", "version"} {
		require.Contains(t, out, w)
	}
	code, out = exit(t, nil, "srve")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "srve")
	code, out = exit(t, nil, "serve", "--help")
	require.Zero(t, code)
	require.Contains(t, out, "SPINDLE_SERVER_HOSTNAME")
	code, out = exit(t, nil, "serve")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "SPINDLE_SERVER_HOSTNAME is not set")
	code, out = exit(t, nil, "version")
	require.Zero(t, code)
	require.Contains(t, out, "spindle")
	code, out = exit(t, nil, "demo", "--nonsense")
	require.Equal(t, exitUsage, code)
	require.Contains(t, out, "nonsense")

	file := filepath.Join(t.TempDir(), "k")
	code, _ = exit(t, nil, "key", "generate", file)
	require.Zero(t, code)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	before, err := os.ReadFile(file)
	require.NoError(t, err)
	code, out = exit(t, nil, "key", "generate", file)
	require.NotZero(t, code, "a key is never overwritten")
	require.NotContains(t, out, string(before))
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

// TestDemoCheck is the whole product in one command.
func TestDemoCheck(t *testing.T) {
	t.Parallel()
	code, out := exit(t, nil, "demo", "--check", "--port", "0")
	if code != 0 && cannotSandbox(out) {
		t.Skip("no sandbox can run here: " + out)
	}
	require.Zero(t, code, out)
	require.Contains(t, out, "all acts held")
	require.NotContains(t, out, "s3cr3t-of-the-demo-4711")
}
