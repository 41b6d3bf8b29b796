package commands

import (
	"strings"
	"testing"
)

func TestReconcileRefusesADatastoreWithoutPods(t *testing.T) {
	for name, test := range map[string]struct {
		kubeconfig, datastore string
		refused               bool
	}{
		"etcd":                    {"", "etcd", true},
		"local":                   {"", "local", true},
		"kubernetes":              {"", "kubernetes", false},
		"no flat file":            {"", "", false},
		"a cluster was asked for": {"/kubeconfig", "etcd", false},
	} {
		err := reconcileOptions{kubeconfig: test.kubeconfig}.wantsKubernetes(reconcileFlatFile{datastore: test.datastore})
		if (err != nil) != test.refused || test.refused && (exitOf(err) != exitUsage || !strings.Contains(err.Error(), "CNI's GC")) {
			t.Errorf("%s: got error %v, want a refusal: %t", name, err, test.refused)
		}
	}
}
