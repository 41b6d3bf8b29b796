package kube_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/integration/testenv/storefault"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/storetest"
	"github.com/whereabouts-cni/whereabouts/kube"
)

var shared = testenv.Shared{CRDs: "../manifests/crds"}

func TestMain(m *testing.M) { shared.Main(m) }

const (
	poolResource        = "ippools"
	reservationResource = "overlappingrangeipreservations"
)

func TestStoreConforms(t *testing.T) {
	cp := shared.ControlPlane(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return newHarness(t, cp, true) })
}

// Old resource definitions prune all fields that old versions did not have.
func TestStoreConformsWithOldDefinitions(t *testing.T) {
	cp := testenv.Start(t)
	cp.ApplyOldCRDs(t)
	storetest.Run(t, func(t *testing.T) storetest.Harness { return newHarness(t, cp, false) })
}

func newHarness(t *testing.T, cp *testenv.ControlPlane, details bool) storetest.Harness {
	namespace := cp.Namespace(t)
	proxy := cp.Proxy(t)
	seed := seeder{cp, namespace}
	return storetest.Harness{
		Store: openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: proxy})),
		Other: func(t *testing.T) ipam.Store {
			return openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace}))
		},
		Faults:          storefault.New(isWrite, proxy),
		Details:         details,
		SeedReservation: seed.reservation,
		SeedRecord:      seed.record,
	}
}

func openStore(t *testing.T, kubeconfig string) *kube.Store {
	t.Helper()
	client, err := kube.NewClient(kube.Options{Kubeconfig: kubeconfig, Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	return kube.NewStore(client, nil)
}

func resourcePath(namespace, resource, name string) string {
	path := fmt.Sprintf("/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/%s/%s", namespace, resource)
	if name != "" {
		path += "/" + name
	}
	return path
}

// seeder writes objects as others would, past the store.
type seeder struct {
	cp        *testenv.ControlPlane
	namespace string
}

func (s seeder) reservation(t *testing.T, r ipam.Reservation) {
	t.Helper()
	spec := testenv.Object{"podref": r.PodRef}
	for key, value := range map[string]string{
		"ifname": r.IfName, "containerid": r.ContainerID, "uid": r.UID, "node": r.Node, "network": r.Network, "range": r.Range,
	} {
		if value != "" {
			spec[key] = value
		}
	}
	if !r.Since.IsZero() {
		spec["since"] = r.Since.UTC().Format("2006-01-02T15:04:05Z07:00")
	}
	s.cp.Must(t).Create(resourcePath(s.namespace, reservationResource, ""), testenv.Object{
		"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
		"metadata": testenv.Object{"name": kube.ReservationName(r.Space, r.Address)}, "spec": spec,
	})
}

func (s seeder) record(t *testing.T, id ipam.PoolID, a netip.Addr, r ipam.Record) {
	t.Helper()
	offset, ok := ipam.Offset(id.Range.Addr(), a)
	if !ok {
		t.Fatalf("%s is not in %s", a, id)
	}
	entry := testenv.Object{"id": r.ContainerID, "podref": r.PodRef, "ifname": r.IfName}
	if r.Gen != "" {
		entry["gen"] = r.Gen
	}
	s.pool(t, id, testenv.Object{offset.String(): entry})
}

// pool adds entries to a pool object, which is made if need be.
func (s seeder) pool(t *testing.T, id ipam.PoolID, entries testenv.Object) {
	t.Helper()
	path := resourcePath(s.namespace, poolResource, kube.PoolName(id))
	patch := testenv.Object{"spec": testenv.Object{"allocations": entries}}
	err := s.cp.Client().Patch(t.Context(), path, testenv.MergePatch, patch, nil)
	if testenv.StatusCode(err) == http.StatusNotFound {
		err = s.cp.Client().Create(t.Context(), resourcePath(s.namespace, poolResource, ""), testenv.Object{
			"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool", "metadata": testenv.Object{"name": kube.PoolName(id)},
			"spec": testenv.Object{"range": id.Range.String(), "allocations": entries},
		}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func isWrite(r testenv.Request) bool { return r.Method != http.MethodGet }
