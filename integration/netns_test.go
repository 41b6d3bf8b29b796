package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// netnsMTU is set by a second plugin of a list, to see that it had its turn.
const netnsMTU = 1400

// netnsCase is a way to use Whereabouts below a main plugin.
type netnsCase struct {
	name    string
	main    Object
	ipam    Object
	chained []Object
	master  bool       // needs the interface "uplink"
	want    [][]string // addresses of the first, the second and the third pod
	mtu     int        // in the pod; 0: not looked at
}

func netnsCases() []netnsCase {
	bridge := Object{"type": "bridge", "bridge": "wb0"}
	return []netnsCase{{
		name: "bridge",
		main: bridge,
		ipam: Object{"range": "10.88.0.0/28", "gateway": "10.88.0.1", "exclude": []string{"10.88.0.3/32"}},
		want: [][]string{{"10.88.0.2/28"}, {"10.88.0.4/28"}, {"10.88.0.5/28"}},
	}, {
		name: "macvlan", main: Object{"type": "macvlan", "master": "uplink", "mode": "bridge"}, master: true,
		ipam: Object{"range": "10.88.0.10-10.88.0.20/24"},
		want: [][]string{{"10.88.0.10/24"}, {"10.88.0.11/24"}, {"10.88.0.12/24"}},
	}, {
		name: "dual stack",
		main: bridge,
		ipam: Object{"ipRanges": []Object{{"range": "10.88.0.0/24"}, {"range": "fd00:88::/64"}}},
		want: [][]string{{"10.88.0.1/24", "fd00:88::1/64"}, {"10.88.0.2/24", "fd00:88::2/64"}, {"10.88.0.3/24", "fd00:88::3/64"}},
	}, {
		name:    "several plugins",
		main:    bridge,
		ipam:    Object{"range": "10.88.0.0/29"},
		chained: []Object{{"type": "tuning", "mtu": netnsMTU}},
		want:    [][]string{{"10.88.0.1/29"}, {"10.88.0.2/29"}, {"10.88.0.3/29"}},
		mtu:     netnsMTU,
	}}
}

func TestNetnsPodsReachEachOther(t *testing.T) {
	t.Parallel()
	for _, c := range netnsCases() {
		for _, v := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			t.Run(c.name+" "+v, func(t *testing.T) {
				t.Parallel()
				c.run(t, v)
			})
		}
	}
}

// run leads three pods through their lives.
func (c netnsCase) run(t *testing.T, v string) {
	n := newNetnsNode(t)
	if c.master {
		n.addMaster()
	}
	main := with(c.main, Object{"ipam": n.local(c.ipam)})
	list := n.network(v, append([]Object{main}, c.chained...)...)
	canCheck, err := version.GreaterThanOrEqualTo(v, "0.4.0")
	if err != nil {
		t.Fatal(err)
	}

	var pods []*netnsPod
	held := map[string]string{}
	for i, want := range c.want {
		p := n.attach(list, fmt.Sprintf("pod-%d", i))
		c.verify(t, p, want)
		// At once: the bridge plugin finds fault with its own bridge after the
		// next pod has come and the bridge has changed its hardware address.
		if canCheck {
			if err := n.check(list, p); err != nil {
				t.Errorf("CHECK of %s: %v", p.name, err)
			}
		}
		for _, a := range p.addresses {
			held[a.String()] = "default/" + p.name
		}
		pods = append(pods, p)
	}
	netnsReach(t, pods)
	if got := n.holders(); !maps.Equal(got, held) {
		t.Errorf("recorded are %v, want %v", got, held)
	}

	n.detach(list, pods[1])
	n.detach(list, pods[1]) // a runtime may repeat it
	c.verify(t, n.attach(list, "pod-3"), c.want[1])
	for _, p := range append(pods, &netnsPod{name: "pod-3", conf: n.pod("pod-3").conf}) {
		n.detach(list, p)
	}
	if got := n.holders(); len(got) > 0 {
		t.Errorf("recorded after all pods have gone: %v", got)
	}
}

// verify looks at what a pod got: in the result and on the interface.
func (c netnsCase) verify(t *testing.T, p *netnsPod, want []string) {
	t.Helper()
	var got []string
	for _, ip := range p.result.IPs {
		got = append(got, ip.Address.String())
		if gateway := c.ipam.String("gateway"); gateway != "" && ip.Gateway.String() != gateway {
			t.Errorf("the gateway of %s is %s, want %s", p.name, ip.Gateway, gateway)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s got %v, want %v", p.name, got, want)
	}
	found, addresses, err := p.space.interfaceOf(p.conf.IfName)
	if err != nil {
		t.Fatal(err)
	}
	var on []string
	for _, a := range addresses {
		on = append(on, a.String())
	}
	slices.Sort(on)
	if !slices.Equal(on, slices.Sorted(slices.Values(want))) {
		t.Errorf("on the interface of %s are %v, want %v", p.name, on, want)
	}
	if c.mtu > 0 && found.MTU != c.mtu {
		t.Errorf("the interface of %s has MTU %d, want %d", p.name, found.MTU, c.mtu)
	}
}

// netnsReach has every pod call every other one on all addresses.
func netnsReach(t *testing.T, pods []*netnsPod) {
	t.Helper()
	for _, to := range pods {
		for _, address := range to.addresses {
			at := to.space.serve(t, address, to.name)
			for _, from := range pods {
				if from == to {
					continue
				}
				said, err := from.space.greeting(t.Context(), at)
				if err != nil || said != to.name {
					t.Errorf("%s called %s at %s and heard %q, %v", from.name, to.name, at, said, err)
				}
			}
		}
	}
}

// addMaster gives the node an interface that macvlan interfaces can be made on.
func (n *netnsNode) addMaster() {
	n.t.Helper()
	n.ip("link add uplink type veth peer name wire")
	n.ip("link set uplink up")
	n.ip("link set wire up")
}

func (n *netnsNode) bridged(more Object) Object {
	return Object{"type": "bridge", "bridge": "wb0", "ipam": n.local(more)}
}

func TestNetnsCheckMissesARecord(t *testing.T) {
	t.Parallel()
	n := newNetnsNode(t)
	list := n.network("1.1.0", n.bridged(Object{"range": "10.88.0.0/24"}))
	p := n.attach(list, "pod-0")
	n.rewrite(func(ipam.Record) *ipam.Record { return nil })
	err := n.check(list, p)
	if err == nil {
		t.Fatal("CHECK finds nothing wrong with an address that is not recorded")
	}
	mentions(t, err.Error(), "10.88.0.1", p.conf.ContainerID, "nobody")
}

// A runtime's GC detaches what it remembers and no longer wants: a DEL for each.
func TestNetnsGarbageOfARuntimeIsDetached(t *testing.T) {
	t.Parallel()
	n := newNetnsNode(t)
	list := n.network("1.1.0", n.bridged(Object{"range": "10.88.0.0/24"}))
	keep, drop := n.attach(list, "keep"), n.attach(list, "drop")
	if err := n.collect(list, keep); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"10.88.0.1": "default/keep"}
	if got := n.holders(); !maps.Equal(got, want) {
		t.Errorf("recorded are %v, want %v", got, want)
	}
	if _, _, err := drop.space.interfaceOf("eth0"); err == nil {
		t.Error("the interface of the dropped pod is still there")
	}
}

// A runtime that lost its memory has GC alone. The reference main plugins do not
// pass it on, so Whereabouts stands in the list itself here.
func TestNetnsGarbageOfALostRuntimeIsCollected(t *testing.T) {
	t.Parallel()
	n := newNetnsNode(t)
	list := n.network("1.1.0", Object{"type": "whereabouts", "ipam": n.local(Object{"range": "10.88.0.0/24"})})
	keep := n.attach(list, "keep")
	n.attach(list, "drop")
	n.rewrite(func(r ipam.Record) *ipam.Record {
		r.Since = r.Since.Add(-time.Hour)
		return &r
	})
	n.attach(list, "young")
	n.restartRuntime()
	if err := n.collect(list, keep); err != nil {
		t.Fatal(err)
	}
	// The young one may have come after the list was made.
	want := map[string]string{"10.88.0.1": "default/keep", "10.88.0.3": "default/young"}
	if got := n.holders(); !maps.Equal(got, want) {
		t.Errorf("recorded are %v, want %v", got, want)
	}
}

func TestNetnsStatus(t *testing.T) {
	t.Parallel()
	n := newNetnsNode(t)
	good := n.bridged(Object{"range": "10.88.0.0/24"})
	if err := n.runtime.GetStatusNetworkList(t.Context(), n.network("1.1.0", good)); err != nil {
		t.Errorf("STATUS: %v", err)
	}
	bad := n.bridged(Object{"range": "no range"})
	err := n.runtime.GetStatusNetworkList(t.Context(), n.network("1.1.0", bad))
	if err == nil {
		t.Fatal("STATUS finds nothing wrong with a range that is none")
	}
	mentions(t, err.Error(), "range", "no range")
}

func TestNetnsPodsOfACluster(t *testing.T) {
	t.Parallel()
	n := newNetnsNode(t)
	c := newCluster(t)
	n.relayTo(c.proxy.URL)
	list := n.network("1.1.0", Object{"type": "bridge", "bridge": "wb0", "ipam": Object{
		"type": "whereabouts", "range": "10.88.0.0/24", "kubernetes": Object{"kubeconfig": c.kubeconfig},
	}})
	var pods []*netnsPod
	want := map[string]string{}
	for i := range 3 {
		p := n.attach(list, fmt.Sprintf("pod-%d", i))
		if err := n.check(list, p); err != nil {
			t.Errorf("CHECK of %s: %v", p.name, err)
		}
		want[fmt.Sprintf("10.88.0.0-24/%d", i+1)] = p.conf.ContainerID
		pods = append(pods, p)
	}
	netnsReach(t, pods)
	c.holds(t, want)
	if err := n.collect(list, pods[0], pods[2]); err != nil {
		t.Fatal(err)
	}
	delete(want, "10.88.0.0-24/2")
	c.holds(t, want)
	for _, p := range pods {
		n.detach(list, p)
	}
	c.empty(t)
}
