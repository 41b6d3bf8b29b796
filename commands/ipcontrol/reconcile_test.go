package ipcontrol_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/commands"
	"github.com/whereabouts-cni/whereabouts/commands/ipcontrol"
	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func call(t *testing.T, name string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errs bytes.Buffer
	exit = commands.Main(commands.Process{
		Args: append([]string{name}, args...), Getenv: func(string) string { return "" }, ReadFile: os.ReadFile,
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now, Version: "test",
	})
	return out.String(), errs.String(), exit
}

func TestReservedAddressSurvivesTheCleanUp(t *testing.T) {
	cp := ipcontrol.Shared.ControlPlane(t)
	namespace := cp.Namespace(t)
	kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: namespace})
	steps := []struct {
		args []string
		says string
	}{
		{[]string{"ip-control", "reserve", "10.77.0.7", "--for", "a robot", "--pool", "10.77.0.0/24"}, "is kept out of circulation"},
		{[]string{"reconcile", "--once", "--grace", "1s"}, ""},
		{[]string{"kubectl-whereabouts", "show", "10.77.0.7"}, `for "a robot"`},
		{[]string{"ip-control", "check"}, "no problems"},
		{[]string{"ip-control", "release", "10.77.0.7", "--yes"}, "freed 10.77.0.7"},
		{[]string{"ip-control", "show", "10.77.0.7"}, "is free"},
	}
	for _, step := range steps {
		args := append(step.args, "--kubeconfig", kubeconfig)
		if step.args[0] != "reconcile" { // which is for the whole cluster
			args = append(args, "-n", namespace)
		}
		stdout, stderr, exit := call(t, "whereabouts", args...)
		if exit != 0 || !strings.Contains(stdout, step.says) {
			t.Fatalf("%v: exit %d, %s%s", step.args, exit, stdout, stderr)
		}
	}
}

func TestNamesAndExitCodes(t *testing.T) {
	missing := t.TempDir() + "/missing.db"
	for _, test := range []struct {
		name string
		args []string
		exit int
		says string
	}{
		{ipcontrol.Name, nil, 0, "COMMANDS"},
		{ipcontrol.Alias, nil, 0, "COMMANDS"},
		{ipcontrol.Name, []string{"shwo"}, 2, "check, completion, import, lint, release, reserve, show"},
		{ipcontrol.Name, []string{"show", "--nonsense"}, 2, "nonsense"},
		{ipcontrol.Name, []string{"show", "-o", "xml"}, 2, `"xml"`},
		{ipcontrol.Name, []string{"show", "a", "b"}, 2, "found 2"},
		{ipcontrol.Name, []string{"show", "--map"}, 2, "--map"},
		{ipcontrol.Name, []string{"show", "--interval", "2"}, 2, "--interval"},
		{ipcontrol.Name, []string{"show", "--local", missing}, 2, "correct the path"},
		{ipcontrol.Name, []string{"show", "--kubeconfig", missing}, 2, "does not exist"},
		{ipcontrol.Name, []string{"show", "--flat-file", missing}, 2, "--flat-file"},
		{ipcontrol.Name, []string{"check", "now"}, 2, `"now"`},
		{ipcontrol.Name, []string{"check", "--grace", "60"}, 2, "--grace"},
		{ipcontrol.Name, []string{"release"}, 2, "found 0"},
		{ipcontrol.Name, []string{"release", "nonsense", "--local", missing}, 2, "correct the path"},
		{ipcontrol.Name, []string{"reserve", "10.0.0.1"}, 2, "--for"},
		{ipcontrol.Name, []string{"reserve", "nonsense", "--for", "x"}, 2, "nonsense"},
		{ipcontrol.Name, []string{"reserve", "10.0.0.1", "--for", "a\nb"}, 2, "--for"},
		{ipcontrol.Name, []string{"reserve", "10.0.0.1", "--for", strings.Repeat("x", 101)}, 2, "101"},
		{ipcontrol.Name, []string{"lint", missing + ".json"}, 2, "lint"},
		{ipcontrol.Name, []string{"lint", "-", "--pod-cidr", "x"}, 2, "--pod-cidr"},
		{ipcontrol.Name, []string{"completion", "csh"}, 2, "csh"},
		{ipcontrol.Name, []string{"completion", "bash"}, 0, "complete -o"},
		{ipcontrol.Name, []string{"--generate-bash-completion"}, 0, "release\n"},
		{ipcontrol.Alias, []string{"show", "--generate-bash-completion"}, 0, "--kubeconfig\n"},
	} {
		stdout, stderr, exit := call(t, test.name, test.args...)
		if exit != test.exit || !strings.Contains(stdout+stderr, test.says) {
			t.Errorf("%s %v: exit %d, want %d and %q: %s%s", test.name, test.args, exit, test.exit, test.says, stdout, stderr)
		}
		if exit == 2 && stdout != "" && !strings.Contains(stdout, "USAGE") {
			t.Errorf("%s %v: stdout %q", test.name, test.args, stdout)
		}
	}
}
