package integration

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

func (n node) status(t testing.TB, config Object) answer {
	t.Helper()
	return n.run(t, call{command: "STATUS", config: with(config, Object{"cniVersion": "1.1.0"})})
}

func TestStatusOfAGoodClusterIsOneCheapRequest(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	n.status(t, c.ranged("10.9.0.0/24")).ok(t)
	requests := c.proxy.Requests()
	if len(requests) != 1 {
		c.proxy.Log(t)
		t.Errorf("STATUS made %d requests, want 1", len(requests))
	}
	for _, r := range requests {
		if list := regexp.MustCompile(`/(ippools|overlappingrangeipreservations|nodeslicepools)$`); list.MatchString(r.Path) {
			t.Errorf("STATUS lists objects: %s", r)
		}
	}
}

func TestStatusWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	c.proxy.Down()
	begin := time.Now()
	n.status(t, c.ranged("10.9.0.0/24")).fails(t, 50)
	// It tries for a while, so that a blip makes no node NotReady, but an end
	// there must be. Both bounds are far from what is meant, which is 10 s.
	if took := time.Since(begin); took < 3*time.Second || took > 40*time.Second {
		t.Errorf("it took %v to say so, want about 10 s", took)
	}
	if err := c.proxy.Up(); err != nil {
		t.Fatal(err)
	}
	n.status(t, c.ranged("10.9.0.0/24")).ok(t)
}

func TestStatusOutlivesABlip(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]testenv.Action{
		"refused": testenv.Refuse(), "503": testenv.Answer(http.StatusServiceUnavailable), "500": testenv.Answer(http.StatusInternalServerError),
		"429": testenv.AnswerStatus(testenv.Status{Code: http.StatusTooManyRequests, RetryAfter: time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			blip := c.proxy.Inject(testenv.Rule{Action: action, Times: 2})
			newNode(t, "node-1").status(t, c.ranged("10.9.0.0/24")).ok(t)
			if blip.Hits() != 2 {
				t.Errorf("the fault happened %d times, want 2", blip.Hits())
			}
		})
	}
}

func TestStatusWithoutTheDefinitions(t *testing.T) {
	t.Parallel()
	cp := testenv.Start(t)
	config := Object{"cniVersion": "1.1.0", "name": "net-a", "ipam": Object{
		"type": "whereabouts", "range": "10.9.0.0/24",
		"kubernetes": Object{"kubeconfig": cp.Kubeconfig(t, testenv.Options{Namespace: cp.Namespace(t)})},
	}}
	n := newNode(t, "node-1")
	message := n.status(t, config).fails(t, 50)
	if !regexp.MustCompile(`(?i)install.*definition|definition.*install`).MatchString(message) {
		t.Errorf("the message %q does not say to install the definitions", message)
	}
	message = n.add(t, pod("a"), config).failsSomehow(t)
	if !regexp.MustCompile(`(?i)definition`).MatchString(message) {
		t.Errorf("ADD's message %q does not speak of the definitions", message)
	}
}

func TestStatusWithoutRights(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	for name, options := range map[string]testenv.Options{
		"no role": {Namespace: c.namespace, User: testenv.Nobody}, "bad token": {Namespace: c.namespace, Token: "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			c.kubeconfig = c.cp.Kubeconfig(t, options)
			n.status(t, c.ranged("10.9.0.0/24")).fails(t, 50)
			n.add(t, pod("a"), c.ranged("10.9.0.0/24")).failsSomehow(t)
		})
	}
	c.empty(t)
}

func (n node) check(t testing.TB, s sandbox, config Object, prevResult any) answer {
	t.Helper()
	if prevResult != nil {
		config = with(config, Object{"prevResult": prevResult})
	}
	return n.run(t, call{command: "CHECK", sandbox: s, config: config})
}

func TestCheck(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := newNode(t, "node-1")
	config := c.config("net-a", Object{"range": "10.10.0.0/24", "ipRanges": []Object{{"range": "fd00:10::/64"}}})
	result := n.add(t, pod("a"), config, "IP=192.0.2.7/24").gets(t, "10.10.0.1/24", "fd00:10::1/64", "192.0.2.7/24").result
	n.check(t, pod("a"), config, result).ok(t)
	n.forgetful(t).check(t, pod("a"), config, result).ok(t)

	mentions(t, n.check(t, pod("a").in("a-c2"), config, result).failsSomehow(t), "10.10.0.1")
	mentions(t, n.check(t, pod("a").on("net2"), config, result).failsSomehow(t), "10.10.0.1")
	n.check(t, pod("a"), config, nil).fails(t, 7)

	for name, change := range map[string]Object{
		"another container": {"op": "replace", "path": "/spec/allocations/1/id", "value": "somebody"},
		"another interface": {"op": "replace", "path": "/spec/allocations/1/ifname", "value": "net9"},
		"no record":         {"op": "remove", "path": "/spec/allocations/1"},
	} {
		before := c.entry("fd00-10---64", "1")
		c.patchPool("fd00-10---64", change)
		message := n.check(t, pod("a"), config, result).failsSomehow(t)
		mentions(t, message, "fd00:10::1")
		c.patchPool("fd00-10---64", Object{"op": "add", "path": "/spec/allocations/1", "value": before})
		n.check(t, pod("a"), config, result).ok(t)
		t.Log(name, "was seen:", message)
	}
	n.del(t, pod("a"), config).ok(t)
	mentions(t, n.check(t, pod("a"), config, result).failsSomehow(t), "10.10.0.1")
	c.empty(t)
}
