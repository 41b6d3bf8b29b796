package reclaim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const testGrace = time.Minute

var (
	noon    = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	address = netip.MustParseAddr("10.0.0.5")
	another = netip.MustParseAddr("10.0.0.6")
	six     = netip.MustParseAddr("fd00::5")
)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// ours is the record of pod default/a, an hour old.
func ours() ipam.Record {
	return ipam.Record{
		ContainerID: "c1", IfName: "net1", PodRef: "default/a", Gen: "0a0b0c0d",
		UID: "uid-a", Node: "node1", Network: "mynet", Since: ago(time.Hour),
	}
}

// bare is a record as an old version writes it.
func bare() ipam.Record { return ipam.Record{ContainerID: "c1", IfName: "net1", PodRef: "default/a"} }

func podA(change ...func(*Pod)) *Pod {
	p := &Pod{
		Namespace: "default", Name: "a", UID: "uid-a", Node: "node1", Phase: Running, Created: ago(time.Hour),
		Networks: true, Addresses: []netip.Addr{address},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func phase(phase Phase) func(*Pod)      { return func(p *Pod) { p.Phase = phase } }
func uid(uid string) func(*Pod)         { return func(p *Pod) { p.UID = uid } }
func noStatus(p *Pod)                   { p.Networks, p.Addresses = false, nil }
func shows(a ...netip.Addr) func(*Pod)  { return func(p *Pod) { p.Addresses = a } }
func mirrors(uids ...string) func(*Pod) { return func(p *Pod) { p.OtherUIDs = uids } }

// terminating was deleted a while ago with 30 s to end.
func terminating(p *Pod) { p.Deleted, p.Grace = ago(10*time.Second), 30*time.Second }

func unscheduled(p *Pod) { p.Node, p.Phase = "", Pending; noStatus(p) }

func unreachableFor(d time.Duration) *Node { return &Node{Name: "node1", Unreachable: ago(d)} }

func healthy() *Node { return &Node{Name: "node1"} }

type judgement struct {
	name   string
	record ipam.Record
	pod    *Pod
	node   *Node
	seen   time.Duration // how long ago it was first seen like this
	keep   bool          // --unreachable-node=keep

	action Action
	reason Reason
	in     time.Duration // of Wait
}

func (j judgement) check(t *testing.T, rule func(Case) Verdict) {
	t.Helper()
	got := rule(Case{
		Address: address, Record: j.record, Pod: j.pod, Node: j.node, Now: noon, First: ago(j.seen),
		Grace: testGrace, KeepUnreachable: j.keep,
	})
	want := Verdict{Action: j.action, Reason: j.reason}
	if j.action == Wait {
		want.At = noon.Add(j.in)
	}
	if got != want {
		t.Errorf("got %v because %s (at %v), want %v because %s (at %v)", got.Action, got.Reason, got.At, want.Action, want.Reason, want.At)
	}
}

func with(r ipam.Record, change func(*ipam.Record)) ipam.Record {
	change(&r)
	return r
}

func since(d time.Duration) func(*ipam.Record) { return func(r *ipam.Record) { r.Since = ago(d) } }

func TestJudge(t *testing.T) {
	reserved := ipam.Record{ContainerID: ipam.ReservedID("the printer"), Since: ago(time.Hour)}
	podless := ipam.Record{ContainerID: "c1", IfName: "eth0", Since: ago(time.Hour)}
	// An old plugin rewrote the id of a record of ours: its details are gone, its token
	// is that of before.
	adopted := ipam.Record{ContainerID: "c2", IfName: "net1", PodRef: "default/a", Gen: "0a0b0c0d"}
	young, unknownAge := with(ours(), since(20*time.Second)), with(ours(), func(r *ipam.Record) { r.Since = time.Time{} })
	unnamed := func(ref string) ipam.Record { return with(ours(), func(r *ipam.Record) { r.PodRef = ref }) }

	for _, tt := range []judgement{
		// 1: what no pod decides about.
		{name: "an unreadable entry stays", record: ipam.Record{}, seen: time.Hour, action: Keep, reason: ReasonUnreadable},
		{name: "an entry with a pod but no container is not unreadable", record: ipam.Record{PodRef: "default/a"}, pod: podA(), action: Keep, reason: ReasonShown},
		{name: "an address that an operator keeps stays", record: reserved, seen: time.Hour, action: Keep, reason: ReasonReserved},
		{name: "an address that an operator keeps stays beside any pod", record: with(reserved, func(r *ipam.Record) { r.PodRef = "default/a" }), action: Keep, reason: ReasonReserved},
		{name: "an owner without a pod stays", record: podless, seen: time.Hour, action: Keep, reason: ReasonNoPod},
		{name: "an owner without a pod stays though a node is gone", record: with(podless, func(r *ipam.Record) { r.Node = "gone" }), action: Keep, reason: ReasonNoPod},
		{name: "a pod's name without a namespace stays", record: unnamed("a"), seen: time.Hour, action: Keep, reason: ReasonUnreadable},
		{name: "a namespace without a name stays", record: unnamed("default/"), seen: time.Hour, action: Keep, reason: ReasonUnreadable},
		{name: "a name that has an empty namespace stays", record: unnamed("/a"), seen: time.Hour, action: Keep, reason: ReasonUnreadable},
		{name: "a name with two slashes stays", record: unnamed("default/a/b"), seen: time.Hour, action: Keep, reason: ReasonUnreadable},

		// 2: no pod.
		{name: "a record whose pod is gone is free", record: ours(), action: Free, reason: ReasonPodGone},
		{name: "a young record whose pod is gone waits for the rest of the grace time", record: young, action: Wait, reason: ReasonPodGone, in: 40 * time.Second},
		{name: "a record of just the grace time is free", record: with(ours(), since(testGrace)), action: Free, reason: ReasonPodGone},
		{name: "a record of unknown age waits for a grace time", record: unknownAge, action: Wait, reason: ReasonPodGone, in: testGrace},
		{name: "a record of unknown age waits for a grace time from the first look", record: unknownAge, seen: 50 * time.Second, action: Wait, reason: ReasonPodGone, in: 10 * time.Second},
		{name: "a record of unknown age is free at the second look", record: unknownAge, seen: testGrace, action: Free, reason: ReasonPodGone},
		{name: "a record that an old plugin adopted is of unknown age", record: adopted, action: Wait, reason: ReasonPodGone, in: testGrace},
		{name: "a record of an old version is of unknown age", record: bare(), action: Wait, reason: ReasonPodGone, in: testGrace},
		{name: "a record from the future waits no longer than one of unknown age", record: with(ours(), since(-24*time.Hour)), seen: 50 * time.Second, action: Wait, reason: ReasonPodGone, in: 10 * time.Second},
		{name: "a record from the future is free at the second look", record: with(ours(), since(-24*time.Hour)), seen: testGrace, action: Free, reason: ReasonPodGone},
		{name: "a young record is not free before the second look", record: young, seen: 30 * time.Second, action: Wait, reason: ReasonPodGone, in: 30 * time.Second},
		{name: "that the node is there says nothing of a pod that is gone", record: ours(), node: healthy(), action: Free, reason: ReasonPodGone},

		// 3: finished pods.
		{name: "a pod that succeeded gives its address back", record: ours(), pod: podA(phase(Succeeded)), action: Free, reason: ReasonPodFinished},
		{name: "a pod that failed gives its address back", record: ours(), pod: podA(phase(Failed)), action: Free, reason: ReasonPodFinished},
		{name: "a finished pod gives its address back at once, young as it is", record: young, pod: podA(phase(Failed)), action: Free, reason: ReasonPodFinished},
		{name: "a finished pod gives its address back though it is terminating on a healthy node", record: ours(), pod: podA(phase(Failed), terminating), node: healthy(), action: Free, reason: ReasonPodFinished},
		{name: "a finished pod gives its address back without a network status", record: ours(), pod: podA(phase(Succeeded), noStatus), action: Free, reason: ReasonPodFinished},
		{name: "a finished pod gives back the record of its namesake too", record: ours(), pod: podA(phase(Succeeded), uid("uid-b")), action: Free, reason: ReasonPodFinished},

		// 4: terminating on a node that does not answer.
		{name: "a terminating pod whose node is gone gives its address back", record: ours(), pod: podA(terminating), action: Free, reason: ReasonNodeGone},
		{name: "a terminating pod whose node is out of service gives its address back", record: ours(), pod: podA(terminating), node: &Node{OutOfService: true}, action: Free, reason: ReasonOutOfService},
		{name: "a node that is unreachable for longer than the pod's grace frees", record: ours(), pod: podA(terminating), node: unreachableFor(31 * time.Second), action: Free, reason: ReasonUnreachable},
		{name: "a node that is unreachable for less than the pod's grace does not free yet", record: ours(), pod: podA(terminating), node: unreachableFor(29 * time.Second), action: Wait, reason: ReasonUnreachable, in: time.Second},
		{name: "a long grace of the pod counts, not ours", record: ours(), pod: podA(terminating, func(p *Pod) { p.Grace = time.Hour }), node: unreachableFor(10 * time.Minute), action: Wait, reason: ReasonUnreachable, in: 50 * time.Minute},
		{name: "a pod without a grace of its own is free as soon as its node is unreachable", record: ours(), pod: podA(terminating, func(p *Pod) { p.Grace = 0 }), node: unreachableFor(0), action: Free, reason: ReasonUnreachable},
		{name: "an unreachable node keeps if it is to", record: ours(), pod: podA(terminating), node: unreachableFor(24 * time.Hour), keep: true, action: Keep, reason: ReasonUnreachable},
		{name: "a node that is gone frees also where unreachable ones keep", record: ours(), pod: podA(terminating), keep: true, action: Free, reason: ReasonNodeGone},
		{name: "a node out of service frees also where unreachable ones keep", record: ours(), pod: podA(terminating), node: &Node{OutOfService: true, Unreachable: ago(time.Second)}, keep: true, action: Free, reason: ReasonOutOfService},
		{name: "a node that is gone frees though the pod shows the address", record: ours(), pod: podA(terminating, shows(address)), action: Free, reason: ReasonNodeGone},
		{name: "a node that is gone frees a record without details", record: bare(), pod: podA(terminating), action: Free, reason: ReasonNodeGone},
		{name: "a node that is gone frees the address of a pod that never started", record: ours(), pod: podA(terminating, phase(Pending), noStatus), action: Free, reason: ReasonNodeGone},
		{name: "a pod on an unreachable node that nobody has deleted keeps its address", record: ours(), pod: podA(), node: unreachableFor(time.Hour), action: Keep, reason: ReasonShown},
		{name: "a pod whose node is gone and that nobody has deleted keeps its address", record: ours(), pod: podA(), action: Keep, reason: ReasonShown},

		// 5: otherwise terminating.
		{name: "a terminating pod on a healthy node keeps its address", record: ours(), pod: podA(terminating), node: healthy(), action: Keep, reason: ReasonTerminating},
		{name: "an evicted pod on a healthy node, by a NoExecute taint, keeps its address", record: ours(), pod: podA(terminating, noStatus), node: healthy(), action: Keep, reason: ReasonTerminating},
		{name: "a terminating pod keeps its address long after it should be gone", record: ours(), pod: podA(terminating, func(p *Pod) { p.Deleted = ago(time.Hour) }), node: healthy(), seen: time.Hour, action: Keep, reason: ReasonTerminating},
		{name: "a terminating pod that does not show the address keeps it", record: ours(), pod: podA(terminating, shows(another)), node: healthy(), seen: time.Hour, action: Keep, reason: ReasonTerminating},
		{name: "a terminating namesake keeps the record of the pod before it", record: ours(), pod: podA(terminating, uid("uid-b")), node: healthy(), seen: time.Hour, action: Keep, reason: ReasonTerminating},
		{name: "a terminating pod that was never scheduled has no node that could be gone", record: ours(), pod: podA(terminating, unscheduled), action: Keep, reason: ReasonTerminating},

		// 6: shown.
		{name: "an address that the pod shows is kept", record: ours(), pod: podA(), seen: time.Hour, action: Keep, reason: ReasonShown},
		{name: "an address that the pod shows among others is kept", record: ours(), pod: podA(shows(six, another, address)), action: Keep, reason: ReasonShown},
		{name: "an address that the pod shows is kept whatever the UID", record: ours(), pod: podA(uid("uid-b")), seen: time.Hour, action: Keep, reason: ReasonShown},
		{name: "an address that a pending pod shows is kept", record: ours(), pod: podA(phase(Pending)), action: Keep, reason: ReasonShown},
		{name: "an address that the pod shows is kept for an old record", record: bare(), pod: podA(), seen: time.Hour, action: Keep, reason: ReasonShown},
		{name: "an address that the pod shows is kept for a record an old plugin adopted", record: adopted, pod: podA(), seen: time.Hour, action: Keep, reason: ReasonShown},

		// 7: a namesake, as of a StatefulSet.
		{name: "a pod re-created on another node before its ADD: the old record waits", record: ours(), pod: podA(uid("uid-b"), phase(Pending), noStatus), action: Wait, reason: ReasonAnotherPod, in: testGrace},
		{name: "a pod re-created on another node before its ADD: the old record is free after the grace time", record: ours(), pod: podA(uid("uid-b"), phase(Pending), noStatus), seen: testGrace, action: Free, reason: ReasonAnotherPod},
		{name: "a pod re-created and not yet scheduled: the old record is free after the grace time", record: ours(), pod: podA(uid("uid-b"), unscheduled), seen: testGrace, action: Free, reason: ReasonAnotherPod},
		{name: "a pod re-created after its ADD with another address: the old record waits", record: ours(), pod: podA(uid("uid-b"), shows(another)), seen: 59 * time.Second, action: Wait, reason: ReasonAnotherPod, in: time.Second},
		{name: "a pod re-created after its ADD with another address: the old record is free", record: ours(), pod: podA(uid("uid-b"), shows(another)), seen: testGrace, action: Free, reason: ReasonAnotherPod},
		{name: "a pod re-created that has no network status is another one all the same", record: ours(), pod: podA(uid("uid-b"), noStatus), seen: testGrace, action: Free, reason: ReasonAnotherPod},
		{name: "the old record's age does not shorten the wait for a namesake", record: with(ours(), since(24*time.Hour)), pod: podA(uid("uid-b"), noStatus), action: Wait, reason: ReasonAnotherPod, in: testGrace},
		{name: "a pod re-created, UID of the record unknown, before its ADD: kept", record: bare(), pod: podA(uid("uid-b"), phase(Pending), noStatus), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a pod re-created, UID of the record unknown, status missing: kept", record: bare(), pod: podA(uid("uid-b"), noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing},
		{name: "a pod re-created, UID of the record unknown, after its ADD: free at the second look", record: bare(), pod: podA(uid("uid-b"), shows(another)), seen: testGrace, action: Free, reason: ReasonNotShown},
		{name: "a record an old plugin adopted has no UID that could differ", record: adopted, pod: podA(uid("uid-b"), phase(Pending), noStatus), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a mirror pod's config hash is its UID too", record: ours(), pod: podA(uid("mirror"), mirrors("uid-a"), noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing},
		{name: "a mirror pod's second hash is its UID too", record: ours(), pod: podA(uid("mirror"), mirrors("x", "uid-a"), phase(Pending), noStatus), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a mirror pod of another manifest is another pod", record: ours(), pod: podA(uid("mirror"), mirrors("uid-b"), noStatus), seen: testGrace, action: Free, reason: ReasonAnotherPod},
		{name: "a pod whose UID is not known may be the record's", record: ours(), pod: podA(uid(""), noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing},

		// 8: nothing to compare yet.
		{name: "a pending pod keeps its address", record: ours(), pod: podA(phase(Pending), noStatus), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a pending pod that shows other addresses keeps this one", record: ours(), pod: podA(phase(Pending), shows(another)), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a pod that is not scheduled keeps its address", record: bare(), pod: podA(unscheduled), seen: time.Hour, action: Keep, reason: ReasonPending},
		{name: "a running pod without a network status keeps its address", record: ours(), pod: podA(noStatus), seen: time.Hour, action: Keep, reason: ReasonStatusMissing},
		{name: "addresses of a status that cannot be read do not count", record: ours(), pod: podA(func(p *Pod) { p.Networks = false }), seen: time.Hour, action: Keep, reason: ReasonStatusMissing},

		// 9: not shown.
		{name: "an address that the pod does not show waits for a second look", record: ours(), pod: podA(shows(another)), action: Wait, reason: ReasonNotShown, in: testGrace},
		{name: "an address that the pod does not show is free at the second look", record: ours(), pod: podA(shows(another)), seen: testGrace, action: Free, reason: ReasonNotShown},
		{name: "an address that the pod does not show is not free before", record: ours(), pod: podA(shows(another)), seen: testGrace - time.Second, action: Wait, reason: ReasonNotShown, in: time.Second},
		{name: "a status without any address shows none", record: ours(), pod: podA(shows()), seen: testGrace, action: Free, reason: ReasonNotShown},
		{name: "a phase that is not known counts as running", record: ours(), pod: podA(phase("Unknown"), shows(another)), seen: testGrace, action: Free, reason: ReasonNotShown},
		{name: "an unreachable node does not keep what its running pod does not show", record: ours(), pod: podA(shows(another)), node: unreachableFor(time.Hour), seen: testGrace, action: Free, reason: ReasonNotShown},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t, Judge) })
	}
}

func TestReasonsAreInWords(t *testing.T) {
	for _, r := range []Reason{
		ReasonUnreadable, ReasonReserved, ReasonNoPod, ReasonPodGone, ReasonPodFinished, ReasonNodeGone, ReasonOutOfService,
		ReasonUnreachable, ReasonTerminating, ReasonShown, ReasonAnotherPod, ReasonPending, ReasonStatusMissing, ReasonNotShown,
		ReasonUnfinished, ReasonDuplicate, ReasonDisputed, ReasonRangeUnknown, ReasonUnknown,
	} {
		if words := r.Words(); words == string(r) || words == "" {
			t.Errorf("reason %q has no words", r)
		}
	}
}
