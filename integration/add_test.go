package integration

import (
	"maps"
	"reflect"
	"testing"
	"time"
)

func TestAddGivesTheLowestAddressAndRecordsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.1.0.0/28")
	begin := time.Now().Truncate(time.Second)
	n.add(t, pod("a"), config).gets(t, "10.1.0.1/28")

	if got := c.pools()["10.1.0.0-28"].String("range"); got != "10.1.0.0/28" {
		t.Errorf("range of the pool is %q", got)
	}
	entry := c.entry("10.1.0.0-28", "1")
	if entry.String("gen") == "" {
		t.Error("the entry has no gen")
	}
	delete(entry, "gen")
	if want := (Object{"id": "a-c1", "podref": "default/a", "ifname": "net1"}); !reflect.DeepEqual(entry, want) {
		t.Errorf("the entry is %v, want %v", entry, want)
	}

	spec := c.reservations()["10.1.0.1"]
	since, err := time.Parse(time.RFC3339, spec.String("since"))
	if err != nil || since.Before(begin) || since.After(time.Now()) {
		t.Errorf("since is %q, want the time of the call (%v)", spec.String("since"), err)
	}
	delete(spec, "since")
	want := Object{
		"podref": "default/a", "ifname": "net1", "containerid": "a-c1", "uid": "uid-of-a",
		"node": "node-1", "network": "net-a", "range": "10.1.0.0/28",
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("the reservation is %v, want %v", spec, want)
	}

	n.add(t, pod("b"), config).gets(t, "10.1.0.2/28")
	n.del(t, pod("a"), config).ok(t)
	n.add(t, pod("c"), config).gets(t, "10.1.0.1/28") // the hole first
	n.del(t, pod("b"), config).ok(t)
	n.del(t, pod("c"), config).ok(t)
	c.empty(t)
}

func TestAddWithoutOverlapProtectionKeepsDetailsInTheEntry(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.unprotected = true
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.1.0.0/28", "enable_overlapping_ranges": false})
	n.add(t, pod("a"), config).gets(t, "10.1.0.1/28")

	details, _ := c.entry("10.1.0.0-28", "1")["details"].(map[string]any)
	if since, _ := details["since"].(string); since == "" {
		t.Error("the details have no since")
	}
	delete(details, "since")
	want := map[string]any{"id": "a-c1", "uid": "uid-of-a", "node": "node-1", "network": "net-a"}
	if !reflect.DeepEqual(details, want) {
		t.Errorf("details are %v, want %v", details, want)
	}
	if left := c.reservations(); len(left) > 0 {
		t.Errorf("there are reservations: %v", left)
	}
	n.add(t, pod("b"), withIPAM(config, Object{"range": "10.1.0.0/27"})).gets(t, "10.1.0.1/27")
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("b"), withIPAM(config, Object{"range": "10.1.0.0/27"})).ok(t)
	c.empty(t)
}

func TestAddPassesGatewayRoutesAndDNSInTheShapeOfTheVersion(t *testing.T) {
	t.Parallel()
	modern := func(version string) Object {
		return Object{
			"cniVersion": version,
			"ips": []any{
				map[string]any{"address": "10.1.0.1/28", "gateway": "10.1.0.14"},
				map[string]any{"address": "fd00:1::1/64"},
			},
			"routes": routes(),
			"dns":    dns(),
		}
	}
	middle := func(version string) Object {
		result := modern(version)
		for i, family := range []string{"4", "6"} {
			result["ips"].([]any)[i].(map[string]any)["version"] = family
		}
		return result
	}
	old := func(version string) Object {
		return Object{
			"cniVersion": version,
			"ip4":        map[string]any{"ip": "10.1.0.1/28", "gateway": "10.1.0.14", "routes": routes()[:1]},
			"ip6":        map[string]any{"ip": "fd00:1::1/64", "routes": routes()[1:]},
			"dns":        dns(),
		}
	}
	shapes := map[string]func(string) Object{
		"0.1.0": old, "0.2.0": old,
		"0.3.0": middle, "0.3.1": middle, "0.4.0": middle,
		"1.0.0": modern, "1.1.0": modern,
	}
	for version, shape := range shapes {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := with(c.config("net-a", Object{
				"range": "10.1.0.0/28", "gateway": "10.1.0.14",
				"ipRanges": []Object{{"range": "fd00:1::/64"}},
				"routes":   routes(), "dns": dns(),
			}), Object{"cniVersion": version})
			got := n.add(t, pod("a"), config).ok(t).result
			if want := shape(version); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			n.del(t, pod("a"), config).ok(t)
			c.empty(t)
		})
	}
}

func routes() []any {
	return []any{
		map[string]any{"dst": "0.0.0.0/0", "gw": "10.1.0.13"},
		map[string]any{"dst": "fd00:2::/64", "gw": "fd00:1::ff"},
	}
}

func dns() map[string]any {
	return map[string]any{
		"nameservers": []any{"10.1.0.12"}, "domain": "example.org",
		"search": []any{"example.org"}, "options": []any{"ndots:1"},
	}
}

func TestGatewayGoesToItsOwnFamilyAndRange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"ipRanges": []Object{
		{"range": "10.1.0.0/28", "gateway": "10.1.0.1"},
		{"range": "fd00:1::/64", "gateway": "fe80::1"},
		{"range": "10.2.0.0/28"},
	}})
	result := n.add(t, pod("a"), config).gets(t, "10.1.0.2/28", "fd00:1::1/64", "10.2.0.1/28").result
	var gateways []any
	for _, ip := range result["ips"].([]any) {
		gateways = append(gateways, ip.(map[string]any)["gateway"])
	}
	if want := []any{"10.1.0.1", "fe80::1", nil}; !reflect.DeepEqual(gateways, want) {
		t.Errorf("gateways are %v, want %v", gateways, want)
	}
	if _, found := result["interfaces"]; found {
		t.Error("the result lists interfaces, which are the main plugin's")
	}
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestFlatFileFillsWhatTheConfigurationLeavesOpen(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	flat := writeJSON(t, "whereabouts.conf", Object{
		"kubernetes": Object{"kubeconfig": c.kubeconfig}, "range": "10.9.0.0/24", "gateway": "10.1.0.14",
		"enable_overlapping_ranges": false, "network_name": "from-flat-file",
	})
	c.unprotected = true
	config := Object{"cniVersion": "1.0.0", "name": "net-a", "ipam": Object{
		"type": "whereabouts", "range": "10.1.0.0/28", "configuration_path": flat, "network_name": "",
	}}
	result := n.add(t, pod("a"), config).gets(t, "10.1.0.1/28").result
	if gateway := result["ips"].([]any)[0].(map[string]any)["gateway"]; gateway != "10.1.0.14" {
		t.Errorf("gateway is %v, want that of the flat file", gateway)
	}
	c.holds(t, map[string]string{"from-flat-file-10.1.0.0-28/1": "a-c1"})
	if len(c.reservations()) > 0 {
		t.Error("the flat file switches overlap protection off, yet there are reservations")
	}
	on := withIPAM(config, Object{"enable_overlapping_ranges": true})
	n.add(t, pod("b"), on).gets(t, "10.1.0.2/28")
	if len(c.reservations()) != 1 {
		t.Error("the network's own configuration switches overlap protection on, yet there is no reservation")
	}
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("b"), on).ok(t)
	c.empty(t)
}

func TestInterfacesOfOnePodNeverShareAnAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	wide, narrow := c.ranged("10.3.0.0/24"), c.config("net-b", Object{"range": "10.3.0.0/28"})
	interfaces := map[string]Object{"net1": wide, "net2": narrow, "net3": wide, "net4": narrow}
	given := map[string]string{}
	for name, config := range interfaces {
		ip := n.add(t, pod("a").on(name), config).ok(t).ips()[0]
		for other, theirs := range given {
			if mustAddr(t, ip) == mustAddr(t, theirs) {
				t.Errorf("%s and %s share %s", name, other, ip)
			}
		}
		given[name] = ip
	}
	again := pod("a").in("a-c2")
	for name, config := range interfaces {
		n.add(t, again.on(name), config).gets(t, given[name])
	}
	n.del(t, again.on("net2"), narrow).ok(t)
	if left := len(c.entries()); left != 3 {
		t.Errorf("%d entries after one of four interfaces went, want 3", left)
	}
	for _, name := range []string{"net1", "net3", "net4"} {
		n.del(t, again.on(name), interfaces[name]).ok(t)
	}
	c.empty(t)
}

func TestOverlappingRangesOfOneNetworkGiveDifferentAddresses(t *testing.T) {
	t.Parallel()
	for name, protected := range map[string]bool{"with overlap protection": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			c.unprotected = !protected
			n := newNode(t, "node-1")
			config := c.config("net-a", Object{
				"range": "10.3.0.0/24", "enable_overlapping_ranges": protected,
				"ipRanges": []Object{{"range": "10.3.0.0/28"}, {"range": "10.3.0.0/24"}, {"range": "fd00:3::/64"}, {"range": "fd00:3::/80"}},
			})
			want := []string{"10.3.0.1/24", "10.3.0.2/28", "10.3.0.3/24", "fd00:3::1/64", "fd00:3::2/80"}
			n.add(t, pod("a"), config).gets(t, want...)
			n.add(t, pod("a").in("a-c2"), config).gets(t, want...)
			n.del(t, pod("a").in("a-c2"), config).ok(t)
			c.empty(t)
		})
	}
}

func TestOneFullRangeLeavesNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"ipRanges": []Object{
		{"range": "10.4.0.0/24"}, {"range": "fd00:4::/64", "range_end": "fd00:4::2"}, {"range": "10.5.0.0/24"},
	}})
	n.add(t, pod("a"), config).ok(t)
	n.add(t, pod("b"), config).ok(t)
	before := c.holders()
	message := n.add(t, pod("c"), config).fails(t, 11)
	mentions(t, message, "fd00:4::/64", "2")
	if after := c.holders(); !maps.Equal(before, after) {
		t.Errorf("the failed call left something: %v, before it %v", after, before)
	}
	if reserved := len(c.reservations()); reserved != 6 {
		t.Errorf("%d reservations, want 6", reserved)
	}
	n.del(t, pod("c"), config).ok(t)
	n.del(t, pod("a"), config).ok(t)
	n.add(t, pod("c"), config).gets(t, "10.4.0.1/24", "fd00:4::1/64", "10.5.0.1/24")
	n.del(t, pod("b"), config).ok(t)
	n.del(t, pod("c"), config).ok(t)
	c.empty(t)
}

func TestWithoutAPodTheContainerIsTheOwner(t *testing.T) {
	t.Parallel()
	nameOnly := func(container string) sandbox {
		return sandbox{pod: "a", container: container, ifName: "eth0"}
	}
	for name, owner := range map[string]func(string) sandbox{"no pod": withoutPod, "no namespace": nameOnly} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := c.ranged("10.16.0.0/28")
			n.add(t, owner("one"), config).gets(t, "10.16.0.1/28")
			n.add(t, owner("two"), config).gets(t, "10.16.0.2/28")
			n.add(t, owner("one"), config).gets(t, "10.16.0.1/28")
			for _, key := range []string{"1", "2"} {
				if ref, found := c.entry("10.16.0.0-28", key)["podref"]; !found || ref != "" {
					t.Errorf("podref of %s is %v, want an empty string", key, ref)
				}
			}
			n.del(t, owner("one"), config).ok(t)
			c.holds(t, map[string]string{"10.16.0.0-28/2": "two"})
			n.del(t, owner("two"), config).ok(t)
			c.empty(t)
		})
	}
}
