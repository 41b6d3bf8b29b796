package reclaim

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// pool is the name of the object of the network's pool.
func (n network) pool() string {
	return kube.PoolName(ipam.PoolID{Network: n.space, Range: netip.MustParsePrefix(n.cidr)})
}

func (n network) reservation(a netip.Addr) string { return kube.ReservationName(n.space, a) }

// key is the key of an address's entry.
func (n network) key(a netip.Addr) string {
	offset, _ := ipam.Offset(netip.MustParsePrefix(n.cidr).Addr(), a)
	return offset.String()
}

// spec is the spec of a record object; nil if there is none.
func (w *world) spec(namespace, plural, name string) Object {
	w.Helper()
	var object Object
	err := w.cp.Client().Get(w.Context(), recordPath(namespace, plural)+"/"+name, &object)
	if err != nil && testenv.StatusCode(err) != 404 {
		w.Fatal(err)
	}
	spec, _ := object["spec"].(map[string]any)
	return spec
}

// entries are the entries of a pool by key.
func (w *world) entries(namespace, pool string) map[string]any {
	w.Helper()
	found, _ := w.spec(namespace, pools, pool)["allocations"].(map[string]any)
	return found
}

// held lists which of the first addresses of a network have an entry, and which a
// reservation.
func (w *world) held(namespace string, n network) (entries, reserved []int) {
	w.Helper()
	stored := w.entries(namespace, n.pool())
	for nth := range 16 {
		a := n.host(nth)
		if stored[n.key(a)] != nil {
			entries = append(entries, nth)
		}
		if w.spec(namespace, reservations, n.reservation(a)) != nil {
			reserved = append(reserved, nth)
		}
	}
	return entries, reserved
}

// makeOld makes what has been recorded of a network an hour old.
func (w *world) makeOld(n network) {
	w.Helper()
	entries, reserved := w.held(w.namespace, n)
	for _, nth := range reserved {
		w.patchReservation(n, n.host(nth), Object{"since": stamp(longAgo())})
	}
	for _, nth := range entries {
		key := n.key(n.host(nth))
		if entry, _ := w.entries(w.namespace, n.pool())[key].(map[string]any); entry["details"] != nil {
			w.patchPool(n, Object{"op": "replace", "path": "/spec/allocations/" + key + "/details/since", "value": stamp(longAgo())})
		}
	}
}

func (w *world) patchReservation(n network, a netip.Addr, spec Object) {
	w.Helper()
	w.must().Patch(w.path(reservations)+"/"+n.reservation(a), testenv.MergePatch, Object{"spec": spec})
}

func (w *world) dropReservation(n network, a netip.Addr) {
	w.Helper()
	w.must().Delete(w.path(reservations) + "/" + n.reservation(a))
}

func (w *world) patchPool(n network, operations ...Object) {
	w.Helper()
	w.must().Patch(w.path(pools)+"/"+n.pool(), testenv.JSONPatch, operations)
}

func (w *world) dropEntry(n network, a netip.Addr) {
	w.Helper()
	w.patchPool(n, Object{"op": "remove", "path": "/spec/allocations/" + n.key(a)})
}

// seedPool makes a pool as it could be found in a cluster.
func (w *world) seedPool(namespace, name, written string, allocations Object) {
	w.Helper()
	w.must().Create(recordPath(namespace, pools), Object{
		"apiVersion": groupVersion, "kind": "IPPool", "metadata": Object{"name": name},
		"spec": Object{"range": written, "allocations": allocations},
	})
}

func reservationObject(name string, spec Object) Object {
	return Object{
		"apiVersion": groupVersion, "kind": "OverlappingRangeIPReservation",
		"metadata": Object{"name": name}, "spec": spec,
	}
}

func (w *world) seedReservation(namespace, name string, spec Object) {
	w.Helper()
	w.must().Create(recordPath(namespace, reservations), reservationObject(name, spec))
}

// snapshot reads all records of a namespace as the program does.
func (w *world) snapshot(ctx context.Context, namespace string) (*ipam.Snapshot, error) {
	client, err := kube.NewClient(kube.Options{
		Kubeconfig: w.cp.Kubeconfig(w.TB, testenv.Options{Namespace: namespace}), Getenv: os.Getenv,
	})
	if err != nil {
		return nil, err
	}
	store := kube.NewStore(client, nil)
	defer store.Close()
	return store.Snapshot(ctx)
}

// contradictions are what is wrong with the records of a namespace: all of them
// have overlap protection but those of the ranges named.
func (w *world) contradictions(namespace string, unprotected ...string) []string {
	w.Helper()
	all, err := w.snapshot(w.Context(), namespace)
	if err != nil {
		w.Fatal(err)
	}
	needs := func(id ipam.PoolID, _ ipam.Record) bool { return !slices.Contains(unprotected, id.Range.String()) }
	var found []string
	for _, f := range ipam.Check(all, ipam.CheckOptions{NeedsReservation: needs}) {
		found = append(found, fmt.Sprintf("%s: %s", f.Kind, f.Text))
	}
	return found
}

// owners says who holds what, by address, of all pools of a namespace.
func (w *world) owners() map[netip.Addr]ipam.Record {
	w.Helper()
	all, err := w.snapshot(w.Context(), w.namespace)
	if err != nil {
		w.Fatal(err)
	}
	found := map[netip.Addr]ipam.Record{}
	for _, p := range all.Pools {
		maps.Copy(found, p.Records)
	}
	return found
}
