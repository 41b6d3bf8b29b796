package kube_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/slice"
	"github.com/whereabouts-cni/whereabouts/kube"
)

const slicePoolResource = "nodeslicepools"

// sliceStore is a store in a namespace of its own.
func sliceStore(t *testing.T, cp *testenv.ControlPlane) (*kube.Store, seeder) {
	t.Helper()
	namespace := cp.Namespace(t)
	return openStore(t, cp.Kubeconfig(t, testenv.Options{Namespace: namespace})), seeder{cp, namespace}
}

// onBothDefinitions runs a test with the definitions that ship and with those of old
// versions.
func onBothDefinitions(t *testing.T, test func(t *testing.T, s *kube.Store, seed seeder)) {
	t.Run("definitions that ship", func(t *testing.T) {
		s, seed := sliceStore(t, shared.ControlPlane(t))
		test(t, s, seed)
	})
	t.Run("old definitions", func(t *testing.T) {
		cp := testenv.Start(t)
		cp.ApplyOldCRDs(t)
		s, seed := sliceStore(t, cp)
		test(t, s, seed)
	})
}

func must[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestSlicePools(t *testing.T) {
	onBothDefinitions(t, func(t *testing.T, s *kube.Store, seed seeder) {
		ctx := t.Context()
		if p := must(s.SlicePool(ctx, "net"))(t); p != nil {
			t.Fatalf("there is a pool already: %v", p)
		}
		list := ipam.SliceList{Network: "net", Range: netip.MustParsePrefix("10.5.0.0/20"), First: true}
		if found := must(s.Slices(ctx, list))(t); len(found) > 0 {
			t.Errorf("slices of no pool are %v", found)
		}
		first := must(s.WriteSlicePool(ctx, kube.SlicePool{Name: "net", Range: "10.5.0.0/20", Size: "/24"}))(t)
		if _, err := s.WriteSlicePool(ctx, kube.SlicePool{Name: "net", Range: "10.5.0.0/20", Size: "/24"}); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("a second creation answers %v", err)
		}

		next := *first
		next.Allocations = []slice.Allocation{
			{NodeName: "b", SliceRange: "10.5.0.0/24"},
			{SliceRange: "10.5.1.0/24"},
			{NodeName: "a", SliceRange: "what?"},
			{NodeName: "a", SliceRange: "10.5.3.7/24"},
		}
		second := must(s.WriteSlicePool(ctx, next))(t)
		if !reflect.DeepEqual(second.Allocations, next.Allocations) || second.Version == first.Version {
			t.Errorf("written is %v", second)
		}
		want := []ipam.NodeSlice{{Node: "b", Range: netip.MustParsePrefix("10.5.0.0/24")}, {Node: "a", Range: netip.MustParsePrefix("10.5.3.0/24")}}
		if found := must(s.Slices(ctx, list))(t); !slices.Equal(found, want) {
			t.Errorf("slices are %v, want %v", found, want)
		}

		late := *first
		late.Allocations = []slice.Allocation{{NodeName: "late", SliceRange: "10.5.0.0/24"}}
		if _, err := s.WriteSlicePool(ctx, late); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("a write of an old version answers %v", err)
		}
		if now := must(s.SlicePool(ctx, "net"))(t); !reflect.DeepEqual(now, second) {
			t.Errorf("stored is %v, want %v", now, second)
		}

		// What others wrote beside it stays.
		path := resourcePath(seed.namespace, slicePoolResource, "net")
		seed.cp.Must(t).Patch(path, testenv.MergePatch, testenv.Object{"metadata": testenv.Object{"labels": testenv.Object{"x": "y"}}})
		second = must(s.SlicePool(ctx, "net"))(t)
		second.Range, second.Allocations = "10.5.0.0/19", second.Allocations[:1]
		third := must(s.WriteSlicePool(ctx, *second))(t)
		if label := seed.cp.Must(t).Get(path).String("metadata", "labels", "x"); label != "y" || third.Range != "10.5.0.0/19" || len(third.Allocations) != 1 {
			t.Errorf("label is %q, written is %v", label, third)
		}

		all := must(s.SlicePools(ctx))(t)
		if len(all) != 1 || !reflect.DeepEqual(all[0], *third) {
			t.Errorf("all are %v, want %v", all, third)
		}
		if err := s.DeleteSlicePool(ctx, *first); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("a deletion of an old version answers %v", err)
		}
		for range 2 {
			if err := s.DeleteSlicePool(ctx, *third); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.WriteSlicePool(ctx, *third); !errors.Is(err, kube.ErrChanged) {
			t.Errorf("a write of what was deleted answers %v", err)
		}
	})
}

// How a server tests for a missing annotation: what openTest relies on.
func TestPatchThatTestsForAMissingAnnotation(t *testing.T) {
	cp := shared.ControlPlane(t)
	const key = "/metadata/annotations/whereabouts.cni.cncf.io~1closed"
	for i, test := range []struct {
		says        string
		annotations testenv.Object
		path        string
		holds       bool
	}{
		{"the key, without annotations", nil, key, false}, // its parent is missing
		{"the key, with another one", testenv.Object{"x": "y"}, key, true},
		{"the key, with it", testenv.Object{"whereabouts.cni.cncf.io/closed": "closing"}, key, false},
		{"the key, with an empty one", testenv.Object{"whereabouts.cni.cncf.io/closed": ""}, key, false},
		{"all, without annotations", nil, "/metadata/annotations", true},
		{"all, with annotations", testenv.Object{"x": "y"}, "/metadata/annotations", false},
	} {
		t.Run(test.says, func(t *testing.T) {
			namespace := cp.Namespace(t)
			name := fmt.Sprint("w-10.0.0.", i, "-32")
			cp.Must(t).Create(resourcePath(namespace, poolResource, ""), testenv.Object{
				"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
				"metadata": testenv.Object{"name": name, "annotations": test.annotations},
				"spec":     testenv.Object{"range": "10.0.0.0/32", "allocations": testenv.Object{}},
			})
			patch := []testenv.Object{
				{"op": "test", "path": test.path, "value": nil},
				{"op": "add", "path": "/spec/allocations/0", "value": testenv.Object{"id": "c", "podref": "a/b"}},
			}
			err := cp.Client().Patch(t.Context(), resourcePath(namespace, poolResource, name), testenv.JSONPatch, patch, nil)
			if holds := err == nil; holds != test.holds || !holds && testenv.StatusCode(err) != http.StatusUnprocessableEntity {
				t.Errorf("it answers %v, want that it holds: %t", err, test.holds)
			}
		})
	}
}
