package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStatusSaysHowAServerIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body string
		code int
		says string
	}{
		"well":      {`{"hostname":"ci.test","version":"v1","parts":[{"name":"backfill","ok":true,"detail":"all 3 accounts are read"}]}`, exitOK, "all 3 accounts are read"},
		"a part":    {`{"hostname":"ci.test","parts":[{"name":"backfill","ok":false,"detail":"\u001b[31mred"}]}`, exitNotRun, "not well: backfill"},
		"not ready": {`{"hostname":"ci.test","notReady":"stopping"}`, exitNotRun, "stopping"},
		"another":   {`<html>`, exitEnv, "does not answer as a spindle"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, "/_status", r.URL.Path)
			_, _ = io.WriteString(w, c.body)
		}))
		var out bytes.Buffer
		require.Equal(t, c.code, run(t.Context(), []string{"spindle", "status", "--server", server.URL}, nil, &out, &out), name)
		require.Contains(t, out.String(), c.says, name)
		require.NotContains(t, out.String(), "\x1b", name)
		server.Close()
	}
	var out bytes.Buffer
	require.Equal(t, exitUsage, run(t.Context(), []string{"spindle", "status", "--server", "ci.test"}, nil, &out, &out))
}
