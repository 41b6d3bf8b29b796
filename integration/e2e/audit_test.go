//go:build e2e

package e2e

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// accounts are the service accounts of the manifests, and their roles.
var accounts = map[string]string{
	"whereabouts":            "whereabouts-cni",
	"whereabouts-reconciler": "whereabouts-reconciler",
	"whereabouts-controller": "whereabouts-controller",
}

// elsewhere are rights that are not used here.
var elsewhere = map[string]string{
	"whereabouts-controller: delete ippools": "a closed pool is kept for an hour",
	"whereabouts-reconciler: create ippools": "what definitions leave open has to be known by --flat-file",
}

// audit reads the API server's record of what the service accounts of the manifests
// asked for: nothing that is forbidden, and all that their roles grant.
func (w *world) audit(t *testing.T) {
	used := w.requests(t)
	for account, role := range accounts {
		var object struct {
			Rules []struct{ Resources, Verbs []string }
		}
		w.get(t, &object, "clusterrole", role)
		for _, rule := range object.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					right := account + ": " + verb + " " + resource
					if used[right] == 0 && elsewhere[right] == "" {
						t.Errorf("granted and never used: %s", right)
					}
				}
			}
		}
	}
	for _, right := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%s: %d times", right, used[right])
	}
}

// requests counts what the accounts asked for, by account, verb and resource.
func (w *world) requests(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.Open(w.cluster.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	used := map[string]int{}
	for decoder := json.NewDecoder(file); ; {
		var event auditEvent
		if err := decoder.Decode(&event); err == io.EOF || err == io.ErrUnexpectedEOF {
			return used // the last line may be under way
		} else if err != nil {
			t.Fatal(err)
		}
		account := strings.TrimPrefix(event.User.Username, "system:serviceaccount:kube-system:")
		if accounts[account] == "" {
			continue
		}
		if event.Annotations["authorization.k8s.io/decision"] == "forbid" {
			t.Errorf("forbidden: %s: %s %s", account, event.Verb, event.RequestURI)
		}
		used[account+": "+event.Verb+" "+event.ObjectRef.name()]++
	}
}

// auditEvent is one of audit.k8s.io/v1.
type auditEvent struct {
	Verb, RequestURI string
	User             struct{ Username string }
	ObjectRef        auditObject
	Annotations      map[string]string
}

type auditObject struct{ Resource, Subresource string }

func (o auditObject) name() string {
	if o.Subresource != "" {
		return o.Resource + "/" + o.Subresource
	}
	return o.Resource
}
