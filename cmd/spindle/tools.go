package main

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"

	"spindle/identity"
)

func keyCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "key",
		Usage: "the server's own key",
		Commands: []*cli.Command{{
			Name:      "generate",
			Usage:     "make a new EC P-256 key, readable by you alone",
			ArgsUsage: "FILE",
			Action: func(_ context.Context, c *cli.Command) error {
				path := c.Args().First()
				if path == "" || c.Args().Len() > 1 {
					return fail(exitUsage, fmt.Errorf("say where to write the key: spindle key generate FILE"))
				}
				if err := identity.GenerateKeyFile(path); err != nil {
					return fail(exitEnv, err)
				}
				fmt.Fprintf(stdout, "wrote %s; set SPINDLE_SERVER_KEY_PATH=%s\n", path, path)
				return nil
			},
		}},
	}
}

func versionCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "say which version this is",
		Action: func(context.Context, *cli.Command) error {
			fmt.Fprintf(stdout, "spindle %s\n", version())
			return nil
		},
	}
}

// version is the module's version, and the commit where the build knows it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "0.1.0-dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]) {
			v += "+" + s.Value[:min(12, len(s.Value))]
		}
	}
	return v + " " + info.GoVersion
}

// has tells whether environ sets name to something.
func has(environ []string, name string) bool {
	for _, kv := range environ {
		if n, v, _ := strings.Cut(kv, "="); n == name && v != "" {
			return true
		}
	}
	return false
}
