package history

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const groupVersion = "whereabouts.cni.cncf.io/v1alpha1"

// kubeStore is custom resources in a namespace of a control plane.
type kubeStore struct {
	cp        *testenv.ControlPlane
	namespace string
	atlas     *atlas
}

var _ datastore = (*kubeStore)(nil)

func newKubeStore(t *testing.T, a *atlas) datastore {
	cp := testenv.Start(t)
	if err := cp.InstallCRDs(t.Context(), "../../manifests/crds"); err != nil {
		t.Fatal(err)
	}
	return &kubeStore{cp, cp.Namespace(t), a}
}

func (k *kubeStore) path(plural string) string {
	return "/apis/" + groupVersion + "/namespaces/" + k.namespace + "/" + plural
}

func (k *kubeStore) reach(t *testing.T, n *node) {
	p := k.cp.Proxy(t)
	n.proxies = []*testenv.Proxy{p}
	n.settings = Object{"kubernetes": Object{"kubeconfig": k.cp.Kubeconfig(t, testenv.Options{Namespace: k.namespace, Via: p})}}
}

func (k *kubeStore) read(ctx context.Context) (all map[place]*stored, unknown []string, err error) {
	pools, err := k.cp.Client().List(ctx, k.path("ippools"))
	if err != nil {
		return nil, nil, err
	}
	reservations, err := k.cp.Client().List(ctx, k.path("overlappingrangeipreservations"))
	if err != nil {
		return nil, nil, err
	}
	all = map[place]*stored{}
	at := func(s *slot, name string) *stored {
		if s == nil {
			unknown = append(unknown, name)
			return newStored()
		}
		return storedAt(all, s.place)
	}
	for _, pool := range pools {
		entries, _ := pool.Field("spec", "allocations").(map[string]any)
		for key, entry := range entries {
			name := pool.Name() + "/" + key
			at(k.atlas.byEntry[name], name).entries[pool.Name()] = entry.(map[string]any)
		}
	}
	for _, r := range reservations {
		if isTurn(r) {
			continue
		}
		spec, _ := r["spec"].(map[string]any)
		at(k.atlas.byReservation[r.Name()], r.Name()).reservation = spec
	}
	return all, unknown, nil
}

// isTurn tells the mark that a killed process may leave behind, if it was its turn to
// write to a crowded pool. It holds no address, and reconcile removes it.
func isTurn(r Object) bool {
	return strings.HasSuffix(r.Name(), "-turn") && strings.HasPrefix(r.String("spec", "containerid"), "turn-")
}

func (k *kubeStore) age(ctx context.Context, n *node, net *network) map[string]place {
	aged := map[string]place{}
	reservations, err := k.cp.Client().List(ctx, k.path("overlappingrangeipreservations"))
	if err != nil {
		return aged
	}
	since := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	for _, r := range reservations {
		container, at := r.String("spec", "containerid"), k.atlas.byReservation[r.Name()]
		if r.String("spec", "node") != n.name || r.String("spec", "network") != net.name || at == nil {
			continue
		}
		err := k.cp.Client().Patch(ctx, k.path("overlappingrangeipreservations")+"/"+r.Name(), testenv.JSONPatch, []Object{
			{"op": "test", "path": "/spec/containerid", "value": container},
			{"op": "replace", "path": "/spec/since", "value": since},
		}, nil)
		if err == nil {
			aged[container] = at.place
		}
	}
	return aged
}

func (k *kubeStore) holder(ctx context.Context, p place) string {
	var r Object
	path := k.path("overlappingrangeipreservations") + "/" + k.atlas.byPlace[p].reservation
	if err := k.cp.Client().Get(ctx, path, &r); err != nil {
		return "" // 404, or the servers are away
	}
	return r.String("spec", "containerid")
}

func (k *kubeStore) outages() []outage {
	cp := k.cp
	away := func(name string, end func(), start func() error) outage {
		return outage{Name: name, Happen: func(ctx context.Context, rng *rand.Rand) error {
			end()
			forAWhile(ctx, rng)
			return start()
		}}
	}
	return []outage{
		away("API server killed", cp.KillAPIServer, cp.StartAPIServer),
		away("API server stopped", cp.StopAPIServer, cp.StartAPIServer),
		away("etcd killed", cp.KillEtcd, cp.StartEtcd),
		away("etcd stopped", cp.StopEtcd, cp.StartEtcd),
	}
}

func (k *kubeStore) isWrite(r testenv.Request) bool { return r.Method != http.MethodGet }

func (k *kubeStore) say(r testenv.Request) (what, body string) {
	path := r.Path
	if _, tail, ok := strings.Cut(path, "/namespaces/"); ok {
		_, path, _ = strings.Cut(tail, "/")
	}
	return r.Method + " " + path, string(r.Body)
}

func (k *kubeStore) mentions(w wire, s *slot) bool {
	if strings.HasSuffix(w.what, "/"+s.reservation) || strings.Contains(w.body, `"name":"`+s.reservation+`"`) {
		return true
	}
	for i, pool := range s.pools {
		entry := "/spec/allocations/" + s.keys[i]
		patched := strings.Contains(w.body, `"`+entry+`"`) || strings.Contains(w.body, `"`+entry+`/`)
		if strings.HasSuffix(w.what, "/"+pool) && patched {
			return true
		}
		if strings.Contains(w.body, `"name":"`+pool+`"`) && strings.Contains(w.body, `"`+s.keys[i]+`":{`) {
			return true
		}
	}
	return false
}

// lateTraces is true: a patch tests single entries, and none was there.
func (k *kubeStore) lateTraces() bool { return true }
