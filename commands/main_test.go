package commands

import (
	"os"
	"testing"
	"time"
)

// pluginVariable makes the test binary the plugin's process instead of a test, as a
// runtime would start it.
const pluginVariable = "WHEREABOUTS_TEST_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(pluginVariable) == "" {
		os.Exit(m.Run())
	}
	os.Exit(Main(Process{
		Args: os.Args, Getenv: os.Getenv, ReadFile: os.ReadFile,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Version: "test",
	}))
}
