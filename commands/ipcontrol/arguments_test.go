package ipcontrol

import (
	"slices"
	"strings"
	"testing"
)

func TestArgumentsMayStandInAnyOrder(t *testing.T) {
	for given, want := range map[string]string{
		"":                                     "",
		"show":                                 "show",
		"release 10.0.0.1 --yes":               "release --yes -- 10.0.0.1",
		"release --yes 10.0.0.1":               "release --yes -- 10.0.0.1",
		"--yes release 10.0.0.1":               "release --yes -- 10.0.0.1",
		"-n kube-system show a -o json":        "show -n kube-system -o json -- a",
		"show a -o=json":                       "show -o=json -- a",
		"show -ojson a":                        "show -ojson -- a",
		"reserve 10.0.0.1 --for it -y":         "reserve --for it -y -- 10.0.0.1",
		"reserve 10.0.0.1 --for --yes":         "reserve --for --yes -- 10.0.0.1",
		"check --fix --grace 1s":               "check --fix --grace 1s",
		"lint -":                               "lint -- -",
		"lint - --pod-cidr 10.0.0.0/8":         "lint --pod-cidr 10.0.0.0/8 -- -",
		"lint --yes -- -odd.json":              "lint --yes -- -odd.json",
		"show a b":                             "show -- a b",
		"--help":                               "--help",
		"show a --help":                        "show --help -- a",
		"show a --nonsense b":                  "show --nonsense -- a b",
		"show a -o":                            "show -o -- a",
		"show --generate-bash-completion":      "show --generate-bash-completion",
		"show a -o --generate-bash-completion": "show a -o --generate-bash-completion",
	} {
		if got := strings.Join(Arguments(strings.Fields(given)), " "); got != want {
			t.Errorf("%q: got %q, want %q", given, got, want)
		}
	}
}

func TestAnOptionIsOfOneKindUnderAllSubcommands(t *testing.T) {
	values := valueFlags()
	for _, sub := range Command(Env{}).Subcommands {
		for _, flag := range sub.Flags {
			_, takes := flag.(interface{ TakesValue() bool })
			if !takes {
				t.Fatalf("%s: --%s does not tell", sub.Name, flag.Names()[0])
			}
			if got := flag.(interface{ TakesValue() bool }).TakesValue(); got != values[flag.Names()[0]] {
				t.Errorf("%s: --%s takes a value: %v, elsewhere %v", sub.Name, flag.Names()[0], got, !got)
			}
		}
	}
	if !slices.Contains([]bool{values["yes"]}, false) || !values["namespace"] || !values["n"] {
		t.Error("--yes takes a value, or --namespace does not")
	}
}
