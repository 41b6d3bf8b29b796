package commands

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Alerts and dashboard must ask for nothing that no role has: they would be silent.
func TestMonitoringUsesMetricsThatExist(t *testing.T) {
	known := everyFamily()
	for file, read := range map[string]func(*testing.T, []byte) []string{
		"../manifests/monitoring/alerts.yaml": alertExpressions, "../manifests/monitoring/dashboard.json": panelExpressions,
	} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all := read(t, data)
			if len(all) < 7 {
				t.Errorf("only %d expressions were found", len(all))
			}
			for _, expression := range all {
				for _, wrong := range unknownIn(expression, known) {
					t.Errorf("%s in %s", wrong, expression)
				}
			}
		})
	}
}

// The test above is only worth something if it sees what is wrong.
func TestUnknownMetricsAreSeen(t *testing.T) {
	known := everyFamily()
	for expression, want := range map[string]int{
		"max by (pool) (whereabouts_pool_addresses)":                       0,
		"max by (node) (whereabouts_pool_addresses)":                       1,
		"whereabouts_pools":                                                1,
		"rate(whereabouts_call_duration_seconds_bucket[5m])":               0,
		"sum by (le, verb) (whereabouts_call_duration_seconds_bucket)":     0,
		"sum by (le) (whereabouts_pool_addresses)":                         1,
		`whereabouts_calls_total{code="x"}`:                                1,
		"whereabouts_pool_addresses_count":                                 1,
		`whereabouts_calls_total{verb="ADD",result="error"} / up{job="x"}`: 0,
	} {
		if got := unknownIn(expression, known); len(got) != want {
			t.Errorf("%s: %v", expression, got)
		}
	}
}

// everyFamily has the labels of all metrics that the roles make, by name.
func everyFamily() map[string][]string {
	m := newMetrics()
	newReconcileFigures(m)
	newControllerFigures(m)
	newInstallFigures(m)
	known := map[string][]string{}
	for name, f := range m.families {
		if f.kind != histogramKind {
			known[name] = f.labels
			continue
		}
		known[name+"_sum"], known[name+"_count"] = f.labels, f.labels
		known[name+"_bucket"] = append(slices.Clone(f.labels), "le")
	}
	return known
}

var (
	usedMetric = regexp.MustCompile(`(whereabouts_\w+)(?:\{([^}]*)\})?`)
	usedLabel  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// unknownIn lists metrics of ours that do not exist, and labels that they lack. A label
// that is grouped by has to be one of every metric of the expression.
func unknownIn(expression string, known map[string][]string) []string {
	var grouped, wrong []string
	for _, by := range grouping.FindAllStringSubmatch(expression, -1) {
		grouped = append(grouped, strings.Split(strings.ReplaceAll(by[1], " ", ""), ",")...)
	}
	for _, use := range usedMetric.FindAllStringSubmatch(expression, -1) {
		labels, there := known[use[1]]
		if !there {
			wrong = append(wrong, "there is no "+use[1])
			continue
		}
		asked := slices.Clone(grouped)
		for _, match := range usedLabel.FindAllStringSubmatch(use[2], -1) {
			asked = append(asked, match[1])
		}
		for _, label := range asked {
			if !slices.Contains(labels, label) {
				wrong = append(wrong, use[1]+" has no label "+label)
			}
		}
	}
	return wrong
}

func alertExpressions(t *testing.T, data []byte) []string {
	t.Helper()
	var object struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr, For string
					Annotations      map[string]string
				}
			}
		}
	}
	if err := yaml.UnmarshalStrict(data, &map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, group := range object.Spec.Groups {
		for _, rule := range group.Rules {
			if rule.For == "" || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s lacks something: %v", rule.Alert, slices.Sorted(maps.Keys(rule.Annotations)))
			}
			all = append(all, rule.Expr)
		}
	}
	return all
}

func panelExpressions(t *testing.T, data []byte) []string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, panel := range board.Panels {
		if panel.Description == "" || len(panel.Targets) == 0 {
			t.Errorf("panel %q has no description or no target", panel.Title)
		}
		for _, target := range panel.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}
