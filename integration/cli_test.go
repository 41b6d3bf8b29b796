package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// said is what a command line printed, and how it ended.
type said struct {
	exit           int
	stdout, stderr string
}

// commandLine runs the binary under a name, as a person does.
func commandLine(t *testing.T, name string, args ...string) said {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(suite.Binary, path); err != nil {
		t.Fatal(err)
	}
	return execute(t, exec.Command(path, args...))
}

func execute(t *testing.T, cmd *exec.Cmd) said {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	}
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return said{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func TestUnknownSubcommand(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"whereabouts", "anything"} {
		got := commandLine(t, name, "versoin")
		if got.exit != 2 || got.stdout != "" {
			t.Errorf("%s versoin: exit %d, stdout %q, want 2 and nothing", name, got.exit, got.stdout)
		}
		mentions(t, got.stderr, "versoin", "help")
		if strings.Count(got.stderr, "version") < 2 {
			t.Errorf("%s versoin: not in the list and suggested, too: %s", name, got.stderr)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"whereabouts", "anything"} {
		for _, command := range []string{"version", "help"} {
			got := commandLine(t, name, command)
			if got.exit != 0 || strings.TrimSpace(got.stdout) == "" || got.stderr != "" {
				t.Errorf("%s %s: exit %d, stdout %q, stderr %q", name, command, got.exit, got.stdout, got.stderr)
			}
		}
	}
}

func TestAllRolesAreListed(t *testing.T) {
	t.Parallel()
	roles := []string{"version", "help"}
	mentions(t, commandLine(t, "whereabouts", "help").stdout, roles...)
	mentions(t, commandLine(t, "whereabouts", "no-such-role").stderr, roles...)
}

// Under another name it is no CNI plugin, whatever the environment says.
func TestAnotherNameIsTheCommandLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "anything")
	if err := os.Symlink(suite.Binary, path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Env = []string{"CNI_COMMAND=VERSION", "CNI_PATH=/opt/cni/bin"}
	cmd.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
	got := execute(t, cmd)
	mentions(t, got.stdout+got.stderr, "version", "help")
	if strings.Contains(got.stdout, "supportedVersions") {
		t.Errorf("it answered as a plugin: %s", got.stdout)
	}
}

func TestPluginWithoutACommandSaysWhatItIs(t *testing.T) {
	t.Parallel()
	got := commandLine(t, "whereabouts")
	if got.exit != 0 || got.stdout != "" {
		t.Errorf("exit %d, stdout %q, want 0 and nothing", got.exit, got.stdout)
	}
	mentions(t, strings.ToLower(got.stderr), "whereabouts", "cni", "1.1.0")
}

func TestPluginTellsItsVersions(t *testing.T) {
	t.Parallel()
	n := newNode(t, "node-1")
	for _, version := range []string{"0.1.0", "1.0.0", "1.1.0"} {
		a := n.run(t, call{command: "VERSION", config: Object{"cniVersion": version}}).ok(t)
		var got struct{ SupportedVersions []string }
		if err := json.Unmarshal([]byte(a.stdout), &got); err != nil {
			t.Fatal(err)
		}
		want := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}
		slices.Sort(got.SupportedVersions)
		if !slices.Equal(got.SupportedVersions, want) {
			t.Errorf("version %s: %s, want %v", version, a.stdout, want)
		}
	}
}
