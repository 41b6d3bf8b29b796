package main

import (
	"os/exec"
	"strings"
	"testing"
)

// buildTags are those of the Makefile: without this one the command line library
// brings in a Markdown renderer whose initialisation takes a millisecond of each
// start.
const buildTags = "urfave_cli_no_docs"

// linkedModules are the modules that may be part of the binary. Every package
// that is linked is paid at each start of a pod, since the initialisation of all
// of them runs in the plugin too. A new line here wants a measured start-up time
// in the commit that adds it.
var linkedModules = map[string]string{
	"github.com/whereabouts-cni/whereabouts": "ourselves",
	"github.com/containernetworking/cni":     "the plugin's protocol",
	"github.com/vishvananda/netns":           "the protocol's check of the network namespace",
	"go4.org/netipx":                         "sets of addresses",
	"go.etcd.io/bbolt":                       "the local store",
	"k8s.io/client-go":                       "credentials and transport, no typed clients",
	"k8s.io/apimachinery":                    "client-go",
	"k8s.io/klog/v2":                         "client-go",
	"k8s.io/kube-openapi":                    "client-go",
	"k8s.io/utils":                           "client-go",
	"sigs.k8s.io/json":                       "client-go",
	"sigs.k8s.io/randfill":                   "client-go",
	"sigs.k8s.io/structured-merge-diff/v6":   "client-go",
	"sigs.k8s.io/yaml":                       "client-go",
	"go.yaml.in/yaml/v2":                     "client-go",
	"github.com/fxamacker/cbor/v2":           "client-go",
	"github.com/go-logr/logr":                "client-go",
	"github.com/modern-go/concurrent":        "client-go",
	"github.com/modern-go/reflect2":          "client-go",
	"github.com/json-iterator/go":            "client-go",
	"github.com/munnerz/goautoneg":           "client-go",
	"github.com/davecgh/go-spew":             "client-go",
	"github.com/spf13/pflag":                 "client-go",
	"github.com/x448/float16":                "client-go",
	"golang.org/x/net":                       "client-go",
	"golang.org/x/oauth2":                    "client-go",
	"golang.org/x/sys":                       "client-go, bbolt",
	"golang.org/x/term":                      "client-go",
	"golang.org/x/text":                      "client-go",
	"golang.org/x/time":                      "client-go",
	"gopkg.in/inf.v0":                        "client-go",
	"github.com/urfave/cli/v2":               "the command line",
	"github.com/xrash/smetrics":              "the command line",
	"github.com/robfig/cron/v3":              "the schedule of the clean-up",
	"github.com/fsnotify/fsnotify":           "files that change while a role runs",
}

// forbiddenPackages each bring in all API groups, or more than a plugin may cost.
var forbiddenPackages = []string{
	"k8s.io/api/",
	"k8s.io/client-go/kubernetes",
	"k8s.io/client-go/dynamic",
	"k8s.io/client-go/metadata",
	"k8s.io/client-go/discovery",
	"k8s.io/client-go/informers",
	"k8s.io/client-go/tools/leaderelection",
	"go.etcd.io/etcd/",
	"google.golang.org/grpc",
	"github.com/whereabouts-cni/whereabouts/integration",
}

func TestOnlyKnownPackagesAreLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags", buildTags, "-deps", "-f", "{{if not .Standard}}{{.Module.Path}} {{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	linked := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		module, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
		linked[module] = true
		if linkedModules[module] == "" {
			t.Errorf("package %s brings in module %s, which is not in the list", pkg, module)
		}
		for _, forbidden := range forbiddenPackages {
			if strings.HasPrefix(pkg, forbidden) {
				t.Errorf("package %s must not be linked", pkg)
			}
		}
	}
	for module := range linkedModules {
		if !linked[module] {
			t.Errorf("module %s is in the list and not linked: remove the line", module)
		}
	}
}
