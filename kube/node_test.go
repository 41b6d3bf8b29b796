package kube

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

func TestNodeTaints(t *testing.T) {
	early := time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		taints string
		want   reclaim.Node
	}{
		"none":  {`null`, reclaim.Node{}},
		"other": {`[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"2024-05-01T10:00:00Z"}]`, reclaim.Node{}},
		"out of service": {
			`[{"key":"node.kubernetes.io/out-of-service","value":"nodeshutdown","effect":"NoExecute"}]`,
			reclaim.Node{OutOfService: true},
		},
		"unreachable": {
			`[{"key":"node.kubernetes.io/unreachable","effect":"NoSchedule","timeAdded":"2024-05-01T10:00:05Z"},
			  {"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2024-05-01T10:00:00Z"}]`,
			reclaim.Node{Unreachable: early},
		},
		"unreachable, one of the taints without a time": {
			`[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute","timeAdded":"2024-05-01T10:00:00Z"},
			  {"key":"node.kubernetes.io/unreachable","effect":"NoSchedule"}]`,
			reclaim.Node{Unreachable: early},
		},
		"unreachable since nobody knows when": {`[{"key":"node.kubernetes.io/unreachable","effect":"NoSchedule"}]`, reclaim.Node{}},
	} {
		var object nodeObject
		if err := json.Unmarshal([]byte(`{"metadata":{"name":"n"},"spec":{"taints":`+c.taints+`}}`), &object); err != nil {
			t.Fatal(err)
		}
		c.want.Name = "n"
		if got := object.node(); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

func TestWhichChangesOfNodesConcern(t *testing.T) {
	fine := &reclaim.Node{Name: "n"}
	lost := &reclaim.Node{Name: "n", Unreachable: time.Unix(100, 0)}
	out := &reclaim.Node{Name: "n", OutOfService: true}
	for name, c := range map[string]struct {
		before, after *reclaim.Node
		want          bool
	}{
		"new": {nil, fine, false}, "heart-beat": {fine, fine, false}, "gone": {fine, nil, true}, "unreachable": {fine, lost, true},
		"out of service": {lost, out, true}, "back": {lost, fine, true}, "seen first when it was lost": {nil, lost, true},
	} {
		if got := nodeConcerns(c.before, c.after); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
