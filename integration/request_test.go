package integration

import (
	"reflect"
	"strings"
	"testing"
)

func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	capability := func(ips ...string) Object { return Object{"runtimeConfig": Object{"ips": ips}} }
	arguments := func(ips ...string) Object { return Object{"args": Object{"cni": Object{"ips": ips}}} }
	tests := map[string]struct {
		ipam   Object
		config Object
		args   []string
		want   []string
		held   map[string]string
	}{
		"with a prefix length":       {args: []string{"IP=10.14.0.9/24"}, want: []string{"10.14.0.9/24"}, held: map[string]string{"10.14.0.0-24/9": "a-c1"}},
		"without":                    {args: []string{"IP=10.14.0.9"}, want: []string{"10.14.0.9/24"}},
		"with another prefix length": {args: []string{"IP=10.14.0.9/32"}, want: []string{"10.14.0.9/24"}},
		"as a capability":            {config: capability("10.14.0.9/24"), want: []string{"10.14.0.9/24"}},
		"as a capability, bare":      {config: capability("10.14.0.9"), want: []string{"10.14.0.9/24"}},
		"in args":                    {config: arguments("10.14.0.9/24"), want: []string{"10.14.0.9/24"}},
		"in args, bare":              {config: arguments("10.14.0.9"), want: []string{"10.14.0.9/24"}},
		"three times the same":       {config: with(capability("10.14.0.9/24"), arguments("10.14.0.9")), args: []string{"IP=10.14.0.9/24"}, want: []string{"10.14.0.9/24"}},
		"twice in one list":          {args: []string{"IP=10.14.0.9,10.14.0.9/24"}, want: []string{"10.14.0.9/24"}},
		"excluded":                   {ipam: Object{"exclude": []string{"10.14.0.8/30"}}, args: []string{"IP=10.14.0.9"}, want: []string{"10.14.0.9/24"}},
		"the gateway":                {ipam: Object{"gateway": "10.14.0.9"}, args: []string{"IP=10.14.0.9"}, want: []string{"10.14.0.9/24"}},
		"below range_start":          {ipam: Object{"range_start": "10.14.0.20"}, args: []string{"IP=10.14.0.9"}, want: []string{"10.14.0.9/24"}},
		"above range_end":            {ipam: Object{"range_end": "10.14.0.5"}, args: []string{"IP=10.14.0.9"}, want: []string{"10.14.0.9/24"}},
		"ending in .0":               {ipam: Object{"range": "10.14.0.0/16"}, args: []string{"IP=10.14.1.0"}, want: []string{"10.14.1.0/16"}, held: map[string]string{"10.14.0.0-16/256": "a-c1"}},
		"outside of every range":     {args: []string{"IP=192.0.2.7/28"}, want: []string{"10.14.0.1/24", "192.0.2.7/28"}, held: map[string]string{"10.14.0.0-24/1": "a-c1"}},
		"outside, no range at all":   {ipam: Object{"range": ""}, args: []string{"IP=192.0.2.7/28"}, want: []string{"192.0.2.7/28"}, held: map[string]string{}},
		"one of two ranges":          {ipam: Object{"ipRanges": []Object{{"range": "fd00:14::/64"}}}, args: []string{"IP=fd00:14::9"}, want: []string{"10.14.0.1/24", "fd00:14::9/64"}},
		"both of two ranges":         {ipam: Object{"ipRanges": []Object{{"range": "fd00:14::/64"}}}, args: []string{"IP=fd00:14::9,10.14.0.9"}, want: []string{"10.14.0.9/24", "fd00:14::9/64"}},
		"after the fixed ones":       {ipam: Object{"addresses": []Object{{"address": "198.51.100.5/24"}}}, args: []string{"IP=192.0.2.7/28"}, want: []string{"10.14.0.1/24", "198.51.100.5/24", "192.0.2.7/28"}},
		"in IPv6, another spelling":  {ipam: Object{"range": "fd00:14::/64"}, args: []string{"IP=fd00:14:0:0::0009"}, want: []string{"fd00:14::9/64"}, held: map[string]string{"fd00-14---64/9": "a-c1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			config := with(withIPAM(c.ranged("10.14.0.0/24"), test.ipam), test.config)
			n.add(t, pod("a"), config, test.args...).gets(t, test.want...)
			if test.held != nil {
				c.holds(t, test.held)
			}
			n.add(t, pod("a").in("a-c2"), config, test.args...).gets(t, test.want...) // restarted
			n.del(t, pod("a").in("a-c2"), config).ok(t)
			c.empty(t)
		})
	}
}

func TestRequestedAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.14.0.0/24", "ipRanges": []Object{{"range": "fd00:14::/64"}}})
	overlapping := c.ranged("10.14.0.0/28")
	n.add(t, pod("holder"), config, "IP=10.14.0.9").gets(t, "10.14.0.9/24", "fd00:14::1/64")
	before := c.holders()
	for name, config := range map[string]Object{"same range": config, "overlapping range": overlapping} {
		message := n.add(t, pod("a"), config, "IP=10.14.0.9").failsSomehow(t)
		if !strings.Contains(message, "held by default/holder") {
			t.Errorf("%s: the message %q does not say who holds the address", name, message)
		}
	}
	if after := c.holders(); !reflect.DeepEqual(before, after) || len(c.reservations()) != 2 {
		t.Errorf("the failed calls left something: %v, %v", after, c.reservations())
	}
	n.add(t, pod("holder").on("net2"), config, "IP=10.14.0.9").failsSomehow(t) // another interface
	n.del(t, pod("holder"), config).ok(t)
	n.add(t, pod("a"), config, "IP=10.14.0.9").gets(t, "10.14.0.9/24", "fd00:14::1/64")
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestRequestedAddressWinsOverAHeldOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.ranged("10.14.0.0/24")
	n.add(t, pod("a"), config).gets(t, "10.14.0.1/24")
	n.add(t, pod("a").in("a-c2"), config, "IP=10.14.0.9").gets(t, "10.14.0.9/24")
	c.holds(t, map[string]string{"10.14.0.0-24/9": "a-c2"})
	n.add(t, pod("a").in("a-c2"), config, "IP=10.14.0.10").gets(t, "10.14.0.10/24")
	c.holds(t, map[string]string{"10.14.0.0-24/10": "a-c2"})
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	c.empty(t)
}

func TestRequestedGateway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.14.0.0/24", "ipRanges": []Object{{"range": "fd00:14::/64"}}})
	result := n.add(t, pod("a"), config, "IP=192.0.2.7/24", "GATEWAY=192.0.2.254,10.14.0.254").
		gets(t, "10.14.0.1/24", "fd00:14::1/64", "192.0.2.7/24").result
	var gateways []any
	for _, ip := range result["ips"].([]any) {
		gateways = append(gateways, ip.(map[string]any)["gateway"])
	}
	if want := []any{"10.14.0.254", nil, "192.0.2.254"}; !reflect.DeepEqual(gateways, want) {
		t.Errorf("gateways are %v, want %v", gateways, want)
	}
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestFixedAddressInARange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{
		"range": "10.15.0.0/24", "range_start": "10.15.0.4",
		"addresses": []Object{{"address": "10.15.0.5/24", "gateway": "10.15.0.254"}},
	})
	result := n.add(t, pod("a"), config).gets(t, "10.15.0.4/24", "10.15.0.5/24").result
	if gateway := result["ips"].([]any)[1].(map[string]any)["gateway"]; gateway != "10.15.0.254" {
		t.Errorf("gateway of the fixed address is %v", gateway)
	}
	c.holds(t, map[string]string{"10.15.0.0-24/4": "a-c1", "10.15.0.0-24/5": "a-c1"})

	shared := n.add(t, pod("b"), config).gets(t, "10.15.0.6/24", "10.15.0.5/24")
	mentions(t, shared.stderr, "10.15.0.5")
	c.holds(t, map[string]string{"10.15.0.0-24/4": "a-c1", "10.15.0.0-24/5": "a-c1", "10.15.0.0-24/6": "b-c1"})

	// Without knowing of the fixed address another network does not give it out.
	other := c.config("net-b", Object{"range": "10.15.0.0/24", "range_start": "10.15.0.4"})
	n.add(t, pod("c"), other).gets(t, "10.15.0.7/24")
	n.del(t, pod("c"), other).ok(t)

	n.add(t, pod("a").in("a-c2"), config).gets(t, "10.15.0.4/24", "10.15.0.5/24") // restarted
	n.check(t, pod("a").in("a-c2"), config, result).ok(t)
	n.del(t, pod("a").in("a-c2"), config).ok(t)
	c.holds(t, map[string]string{"10.15.0.0-24/6": "b-c1"})
	n.add(t, pod("d"), config).gets(t, "10.15.0.4/24", "10.15.0.5/24") // free: recorded again
	c.holds(t, map[string]string{"10.15.0.0-24/4": "d-c1", "10.15.0.0-24/5": "d-c1", "10.15.0.0-24/6": "b-c1"})
	n.del(t, pod("b"), config).ok(t)
	n.del(t, pod("d"), config).ok(t)
	c.empty(t)
}

// What somebody of another network has is no shared address.
func TestFixedAddressHeldByAnotherNetwork(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	other := c.config("net-b", Object{"range": "10.15.0.0/24", "range_start": "10.15.0.5"})
	n.add(t, pod("holder"), other).gets(t, "10.15.0.5/24")
	config := c.config("net-a", Object{"range": "10.15.0.0/24", "addresses": []Object{{"address": "10.15.0.5/24"}}})
	message := n.add(t, pod("a"), config).failsSomehow(t)
	mentions(t, message, "10.15.0.5", "default/holder")
	c.holds(t, map[string]string{"10.15.0.0-24/5": "holder-c1"})
	n.del(t, pod("holder"), other).ok(t)
	n.add(t, pod("a"), config).gets(t, "10.15.0.1/24", "10.15.0.5/24")
	n.del(t, pod("a"), config).ok(t)
	c.empty(t)
}

func TestFixedAddressOutsideOfEveryRange(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"addresses": []Object{{"address": "192.0.2.5/24"}, {"address": "2001:db8::5/64", "gateway": "2001:db8::1"}}})
	n.add(t, pod("a"), config).gets(t, "192.0.2.5/24", "2001:db8::5/64")
	n.add(t, pod("b"), config).gets(t, "192.0.2.5/24", "2001:db8::5/64")
	if pools := c.pools(); len(pools) > 0 {
		t.Errorf("addresses outside of every range made pools: %v", pools)
	}
	n.del(t, pod("a"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
}
