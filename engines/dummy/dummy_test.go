package dummy_test

import (
	"testing"

	"go.uber.org/goleak"

	"spindle/engines/dummy"
	"spindle/engines/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.Suite{Engine: dummy.New(dummy.Config{})})
}
