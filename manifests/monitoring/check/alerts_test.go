package check

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// hour is how long each case lasts, in minutes. Prometheus looks once a minute.
const hour = 60

// never is for alerts that do not fire within the hour.
const never = -1

// scenes are when alerts fire and when they do not. The series are in the notation of Prometheus' tests: "0x59" is 60
// times 0, a minute apart; "0+60x59" goes up by 60 each minute. The clock starts at 0.
var scenes = map[string]struct {
	alert  string
	series []string
	from   int // minute of the first time that it fires
	says   string
}{
	"a full pool": {"WhereaboutsPoolFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24",instance="a"} 0x59`,
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24",instance="b"} 0x59`,
	}, 5, "Pool 10.0.0.0-24 has no free address"},
	"a pool that was full for a moment": {"WhereaboutsPoolFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24"} 0x3 1x55`,
	}, never, ""},
	"a pool that one replica has seen to be free": {"WhereaboutsPoolFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24",instance="a"} 0x59`,
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24",instance="b"} 1x59`,
	}, never, ""},
	"nine of a hundred are free": {"WhereaboutsPoolNearlyFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24"} 9x59`,
		`whereabouts_pool_used_addresses{namespace="kube-system",pool="10.0.0.0-24"} 91x59`,
	}, 15, "Pool 10.0.0.0-24 will soon be full"},
	"eleven of a hundred are free": {"WhereaboutsPoolNearlyFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24"} 11x59`,
		`whereabouts_pool_used_addresses{namespace="kube-system",pool="10.0.0.0-24"} 89x59`,
	}, never, ""},
	"a full pool is no longer nearly full": {"WhereaboutsPoolNearlyFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24"} 0x59`,
		`whereabouts_pool_used_addresses{namespace="kube-system",pool="10.0.0.0-24"} 254x59`,
	}, never, ""},
	"an empty pool": {"WhereaboutsPoolNearlyFull", []string{
		`whereabouts_pool_free_addresses{namespace="kube-system",pool="10.0.0.0-24"} 254x59`,
		`whereabouts_pool_used_addresses{namespace="kube-system",pool="10.0.0.0-24"} 0x59`,
	}, never, ""},
	"clean-up fails again and again": {"WhereaboutsCleanUpFailing", []string{
		`whereabouts_reconcile_failures_total{instance="a"} 0+1x59`,
	}, 31, "Addresses that nobody holds cannot be freed"},
	"clean-up failed once": {"WhereaboutsCleanUpFailing", []string{
		`whereabouts_reconcile_failures_total{instance="a"} 0x5 1x53`,
	}, never, ""},
	"clean-up is stuck": {"WhereaboutsCleanUpStopped", []string{
		`whereabouts_reconcile_last_success_timestamp_seconds{instance="a"} 0x59`,
	}, 36, "No clean-up has succeeded for half an hour"},
	"there is no clean-up": {"WhereaboutsCleanUpStopped", []string{
		`up{job="something else"} 1x59`,
	}, 5, "No clean-up has succeeded for half an hour"},
	"one of two replicas cleans up": {"WhereaboutsCleanUpStopped", []string{
		`whereabouts_reconcile_last_success_timestamp_seconds{instance="a"} 0x59`,
		`whereabouts_reconcile_last_success_timestamp_seconds{instance="b"} 0+60x59`,
	}, never, ""},
	"two pods with one address": {"WhereaboutsDuplicateAddress", []string{
		`whereabouts_reconcile_duplicate_addresses{instance="a"} 1x59`,
		`whereabouts_reconcile_duplicate_addresses{instance="b"} 1x59`,
	}, 5, "Two pools of a network record the same address"},
	"every address is in one pool": {"WhereaboutsDuplicateAddress", []string{
		`whereabouts_reconcile_duplicate_addresses{instance="a"} 0x59`,
	}, never, ""},
	"an entry that somebody has spoiled": {"WhereaboutsRecordsUnreadable", []string{
		`whereabouts_reconcile_unreadable_entries{instance="a"} 1x59`,
	}, 30, "Some records cannot be understood"},
	"an entry that was corrected": {"WhereaboutsRecordsUnreadable", []string{
		`whereabouts_reconcile_unreadable_entries{instance="a"} 1x20 0x38`,
	}, never, ""},
	"a node's releases wait": {"WhereaboutsQueueNotDraining", []string{
		`whereabouts_release_queue_length{instance="10.0.0.1:18080"} 3x59`,
		`whereabouts_release_queue_oldest_timestamp_seconds{instance="10.0.0.1:18080"} 0x59`,
	}, 21, "10.0.0.1:18080 cannot give addresses back"},
	"a node's releases come and go": {"WhereaboutsQueueNotDraining", []string{
		`whereabouts_release_queue_length{instance="10.0.0.1:18080"} 3x59`,
		`whereabouts_release_queue_oldest_timestamp_seconds{instance="10.0.0.1:18080"} 0+60x59`,
	}, never, ""},
	"no release waits": {"WhereaboutsQueueNotDraining", []string{
		`whereabouts_release_queue_length{instance="10.0.0.1:18080"} 0x59`,
		`whereabouts_release_queue_oldest_timestamp_seconds{instance="10.0.0.1:18080"} 0x59`,
	}, never, ""},
	"a node's credentials are refused": {"WhereaboutsNodeCredentials", []string{
		`whereabouts_install_credentials_working{instance="10.0.0.1:18080"} 0x59`,
	}, 10, "10.0.0.1:18080 has no working credentials"},
	"a node's credentials work": {"WhereaboutsNodeCredentials", []string{
		`whereabouts_install_credentials_working{instance="10.0.0.1:18080"} 1x59`,
	}, never, ""},
	"nodes wait for a slice": {"WhereaboutsNodeWithoutSlice", []string{
		`whereabouts_controller_nodes_without_slice{pool="storage",instance="a"} 2x59`,
		`whereabouts_controller_nodes_without_slice{pool="storage",instance="b"} 2x59`,
	}, 10, "Nodes have no slice of storage"},
	"every node has its slice": {"WhereaboutsNodeWithoutSlice", []string{
		`whereabouts_controller_nodes_without_slice{pool="storage",instance="a"} 0x59`,
	}, never, ""},
}

// Each alert fires when it should and no sooner, says what it is about, and is silent
// when all is well.
func TestAlerts(t *testing.T) {
	fired, silent := map[string]bool{}, map[string]bool{}
	for name, test := range scenes {
		fired[test.alert] = fired[test.alert] || test.from != never
		silent[test.alert] = silent[test.alert] || test.from == never
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, summaries := fires(t, test.alert, test.series)
			if from != test.from {
				t.Errorf("it fires from minute %d on, want %d", from, test.from)
			}
			if test.from != never && (len(summaries) != 1 || summaries[0] != test.says) {
				t.Errorf("it says %q, want once %q", summaries, test.says)
			}
		})
	}
	for alert, r := range alerts(t) {
		if r.For == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks something: %+v", alert, r)
		}
		if !fired[alert] || !silent[alert] {
			t.Errorf("%s: there is a scene in which it fires: %t; and one in which it does not: %t", alert, fired[alert], silent[alert])
		}
	}
}

// rule is an alert as it is written.
type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) map[string]rule {
	t.Helper()
	data, err := os.ReadFile("../alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec struct{ Groups []struct{ Rules []rule } }
	}
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	all := map[string]rule{}
	for _, group := range object.Spec.Groups {
		for _, r := range group.Rules {
			all[r.Alert] = r
		}
	}
	return all
}

// fires looks once a minute, and answers the first in which the alert fires, and the
// summaries of all that fire at the end.
func fires(t *testing.T, alert string, series []string) (from int, summaries []string) {
	t.Helper()
	r, known := alerts(t)[alert]
	if !known {
		t.Fatalf("there is no alert %s", alert)
	}
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
	if err != nil {
		t.Fatal(err)
	}
	hold, err := model.ParseDuration(r.For)
	if err != nil {
		t.Fatal(err)
	}
	load := "load 1m\n"
	for _, s := range series {
		load += fmt.Sprintln("\t" + s)
	}
	storage := promqltest.LoadedStorage(t, load)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, 10_000)
	query := rules.EngineQueryFunc(engine, storage)
	rule := rules.NewAlertingRule(alert, expression, time.Duration(hold), 0,
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	from = never
	for minute := range hour {
		now := time.Unix(0, 0).Add(time.Duration(minute) * time.Minute)
		if _, err := rule.Eval(context.Background(), 0, now, query, nil, 0); err != nil {
			t.Fatal(err)
		}
		summaries = nil
		for _, a := range rule.ActiveAlerts() {
			if a.State == rules.StateFiring {
				summaries = append(summaries, a.Annotations.Get("summary"))
			}
		}
		if from == never && len(summaries) > 0 {
			from = minute
		}
	}
	return from, summaries
}
