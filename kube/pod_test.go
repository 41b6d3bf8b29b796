package kube

import (
	"encoding/json"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/reclaim"
)

func TestNetworkStatus(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		ok   bool
	}{
		"all networks, the default one too": {
			`[{"name":"cbr0","interface":"eth0","ips":["10.244.0.5"],"default":true,"dns":{}},
			  {"name":"a/net","interface":"net1","ips":["10.0.0.1","fd00::1"],"mac":"aa:bb"}]`,
			[]string{"10.244.0.5", "10.0.0.1", "fd00::1"},
			true,
		},
		"a network without addresses": {`[{"name":"sriov","interface":"net1"}]`, nil, true},
		"addresses that are null":     {`[{"name":"a","ips":null}]`, nil, true},
		"with a mask":                 {`[{"ips":["10.0.0.1/24"]}]`, []string{"10.0.0.1"}, true},
		"leading zeros":               {`[{"ips":["010.000.0.1"]}]`, []string{"10.0.0.1"}, true},
		"IPv4 in IPv6 clothes":        {`[{"ips":["::ffff:10.0.0.1"]}]`, []string{"10.0.0.1"}, true},
		"long IPv6":                   {`[{"ips":["FD00:0:0:0:0:0:0:1"]}]`, []string{"fd00::1"}, true},
		"blanks":                      {` [ { "ips" : [ " 10.0.0.1 " ] } ] `, []string{"10.0.0.1"}, true},
		"empty":                       {"", nil, false},
		"no network":                  {"[]", nil, false},
		"null":                        {"null", nil, false},
		"cut off":                     {`[{"ips":["10.0.0.1"]`, nil, false},
		"something behind it":         {`[{"ips":["10.0.0.1"]}] x`, nil, false},
		"not a list":                  {`{"ips":["10.0.0.1"]}`, nil, false},
		"addresses that are no list":  {`[{"ips":"10.0.0.1"}]`, nil, false},
		"a bad address after a good":  {`[{"ips":["10.0.0.1"]},{"ips":["10.0.0.256"]}]`, nil, false},
		"an empty address":            {`[{"ips":[""]}]`, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseNetworkStatus(c.text)
			var want []netip.Addr
			for _, text := range c.want {
				want = append(want, netip.MustParseAddr(text))
			}
			if ok != c.ok || !slices.Equal(got, want) {
				t.Errorf("got %v, %v; want %v, %v", got, ok, want, c.ok)
			}
		})
	}
}

func FuzzNetworkStatus(f *testing.F) {
	f.Add(`[{"name":"a","interface":"net1","ips":["10.0.0.1/24","::ffff:1.2.3.4","fd00::1"]}]`)
	f.Add(`[{"ips":["1.2.3.4%eth0"]}]`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseNetworkStatus(text)
		if !ok && got != nil {
			t.Fatalf("addresses %v of a status that cannot be read", got)
		}
		if ok && !json.Valid([]byte(text)) {
			t.Fatal("read something that is not JSON")
		}
		for _, a := range got {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Fatalf("%v is no address that a record could have", a)
			}
		}
	})
}

func TestPodIsTranslated(t *testing.T) {
	var object podObject
	err := json.Unmarshal([]byte(`{
		"metadata": {
			"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
			"creationTimestamp": "2024-05-01T10:00:00Z", "deletionTimestamp": "2024-05-01T11:00:30Z", "deletionGracePeriodSeconds": 30,
			"annotations": {
				"k8s.v1.cni.cncf.io/networks-status": "[{\"ips\":[\"10.0.0.1\"]}]",
				"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "m", "other": "x"
			}
		},
		"spec": {"nodeName": "node1", "containers": [{"name": "c"}]},
		"status": {"phase": "Running", "podIP": "10.1.1.1"}
	}`), &object)
	if err != nil {
		t.Fatal(err)
	}
	p := object.pod(interner{})
	switch {
	case p.Namespace != "n", p.Name != "p", p.UID != "u", p.Node != "node1", p.Phase != reclaim.Running:
		t.Errorf("wrong: %+v", p)
	case !slices.Equal(p.OtherUIDs, []string{"h", "m"}):
		t.Errorf("got other UIDs %q", p.OtherUIDs)
	case !p.Created.Equal(time.Date(2024, 5, 1, 10, 0, 0, 0, time.UTC)):
		t.Errorf("created %s", p.Created)
	case !p.Deleted.Equal(time.Date(2024, 5, 1, 11, 0, 30, 0, time.UTC)), p.Grace != 30*time.Second:
		t.Errorf("deleted %s, grace %s", p.Deleted, p.Grace)
	case !p.Networks, !slices.Equal(p.Addresses, []netip.Addr{netip.MustParseAddr("10.0.0.1")}):
		t.Errorf("addresses %v, %v", p.Addresses, p.Networks)
	}
	object.Metadata.Annotations.NetworkStatus = `[{"ips":["10.0.0.2"]}]`
	if p := object.pod(nil); p.Addresses[0] != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("the older annotation wins: %v", p.Addresses)
	}
	object.Metadata.Annotations.NetworkStatus = "x"
	if p := object.pod(nil); p.Networks {
		t.Error("the older annotation stands in for one that cannot be read")
	}
}

func TestWhichChangesOfPodsConcern(t *testing.T) {
	pod := func(change func(*reclaim.Pod)) *reclaim.Pod {
		p := &reclaim.Pod{Namespace: "n", Name: "p", UID: "u", Phase: reclaim.Running}
		change(p)
		return p
	}
	same := func(*reclaim.Pod) {}
	deleted := func(p *reclaim.Pod) { p.Deleted = time.Unix(100, 0) }
	for name, c := range map[string]struct {
		before, after *reclaim.Pod
		want          bool
	}{
		"new":                         {nil, pod(func(p *reclaim.Pod) { p.Phase = reclaim.Pending }), false},
		"ready":                       {pod(func(p *reclaim.Pod) { p.Phase = reclaim.Pending }), pod(func(p *reclaim.Pod) { p.Networks = true }), false},
		"nothing":                     {pod(same), pod(same), false},
		"gone":                        {pod(same), nil, true},
		"succeeded":                   {pod(same), pod(func(p *reclaim.Pod) { p.Phase = reclaim.Succeeded }), true},
		"failed":                      {pod(same), pod(func(p *reclaim.Pod) { p.Phase = reclaim.Failed }), true},
		"terminating":                 {pod(same), pod(deleted), true},
		"still terminating":           {pod(deleted), pod(deleted), false},
		"ends while terminating":      {pod(deleted), pod(func(p *reclaim.Pod) { deleted(p); p.Phase = reclaim.Failed }), true},
		"another of the name":         {pod(same), pod(func(p *reclaim.Pod) { p.UID = "v" }), true},
		"seen first when it was over": {nil, pod(func(p *reclaim.Pod) { p.Phase = reclaim.Succeeded }), true},
	} {
		if got := podConcerns(c.before, c.after); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
