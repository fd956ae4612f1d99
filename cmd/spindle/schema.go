package main

import (
	"context"
	"fmt"
	"io"

	"github.com/urfave/cli/v3"

	"spindle/workflow"
)

func schemaCommand(stdout io.Writer) *cli.Command {
	return &cli.Command{
		Name:        "schema",
		Usage:       "print the JSON Schema (2020-12) of workflow files, for editors",
		ArgsUsage:   "[workflow]",
		Description: "spindle schema > .tangled/workflow.schema.json",
		Action: func(_ context.Context, c *cli.Command) error {
			if args := c.Args().Slice(); len(args) > 1 || len(args) == 1 && args[0] != "workflow" {
				return fail(exitUsage, fmt.Errorf("there is one schema, workflow; got %q", clipped(c.Args().First())))
			}
			text, err := workflow.Schema(workflow.Limits{})
			if err != nil {
				return fail(exitEnv, err)
			}
			if _, err := stdout.Write(text); err != nil {
				return fail(exitEnv, fmt.Errorf("write the schema: %w", err))
			}
			return nil
		},
	}
}
