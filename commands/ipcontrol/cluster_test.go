package ipcontrol

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Shared is the control plane of the tests here.
var Shared = testenv.Shared{CRDs: "../../manifests/crds"}

func TestMain(m *testing.M) { Shared.Main(m) }

const crds = "/apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/"

// realCluster is a namespace of a real API server, and a person in front of it.
type realCluster struct {
	*shell
	cp        *testenv.ControlPlane
	namespace string
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	cp := Shared.ControlPlane(t)
	cp.ApplyCRDs(t, "../../kube/testdata/definitions")
	c := &realCluster{shell: newShell(t), cp: cp, namespace: cp.Namespace(t)}
	c.now = time.Now().UTC().Truncate(time.Second)
	c.env["KUBECONFIG"] = cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace})
	c.env["WHEREABOUTS_STATE_DIR"] = t.TempDir()
	return c
}

func (c *realCluster) in(args ...string) answer {
	c.t.Helper()
	return c.run(append(args, "-n", c.namespace)...)
}

func (c *realCluster) long() string { return c.now.Add(-10 * time.Minute).Format(time.RFC3339) }

func (c *realCluster) ref(pod string) string { return c.namespace + "/" + pod }

func (c *realCluster) entry(pod string) testenv.Object {
	return testenv.Object{"id": "c-" + pod, "podref": c.ref(pod), "ifname": "net1", "gen": "1"}
}

func (c *realCluster) pool(name, cidr string, allocations testenv.Object) {
	c.t.Helper()
	c.cp.Must(c.t).Create(crds+c.namespace+"/ippools", testenv.Object{
		"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "IPPool",
		"metadata": testenv.Object{"name": name}, "spec": testenv.Object{"range": cidr, "allocations": allocations},
	})
}

func (c *realCluster) reserve(address, pod, uid, cidr string) {
	c.t.Helper()
	c.cp.Must(c.t).Create(crds+c.namespace+"/overlappingrangeipreservations", testenv.Object{
		"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
		"metadata": testenv.Object{"name": address},
		"spec": testenv.Object{
			"podref": c.ref(pod), "ifname": "net1", "containerid": "c-" + pod, "uid": uid, "range": cidr, "since": c.long(),
		},
	})
}

func (c *realCluster) pod(name, phase string, addresses ...string) (uid string) {
	c.t.Helper()
	status, err := json.Marshal([]testenv.Object{{"name": "net", "ips": addresses}})
	if err != nil {
		c.t.Fatal(err)
	}
	pods := "/api/v1/namespaces/" + c.namespace + "/pods"
	made := c.cp.Must(c.t).Create(pods, testenv.Object{
		"metadata": testenv.Object{"name": name, "annotations": testenv.Object{"k8s.v1.cni.cncf.io/network-status": string(status)}},
		"spec":     testenv.Object{"nodeName": "n1", "containers": []any{testenv.Object{"name": "c", "image": "i"}}},
	})
	c.cp.Must(c.t).Patch(pods+"/"+name+"/status", testenv.MergePatch, testenv.Object{"status": testenv.Object{"phase": phase}})
	return made.String("metadata", "uid")
}

func (c *realCluster) define(name, config string) {
	c.t.Helper()
	c.cp.Must(c.t).Create("/apis/k8s.cni.cncf.io/v1/namespaces/"+c.namespace+"/network-attachment-definitions", testenv.Object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": testenv.Object{"name": name}, "spec": testenv.Object{"config": config},
	})
}

// allocations are the keys of a pool object.
func (c *realCluster) allocations(pool string) map[string]any {
	c.t.Helper()
	all, _ := c.cp.Must(c.t).Get(crds+c.namespace+"/ippools/"+pool).Field("spec", "allocations").(map[string]any)
	return all
}

// reservations are the names of reservations.
func (c *realCluster) reservations() map[string]bool {
	c.t.Helper()
	names := map[string]bool{}
	for _, o := range c.cp.Must(c.t).List(crds + c.namespace + "/overlappingrangeipreservations") {
		names[o.Name()] = true
	}
	return names
}

const protected = `{"name": "net", "ipam": {"type": "whereabouts", "enable_overlapping_ranges": true, "network_name": "", "range": "10.0.0.0/24", "ipRanges": [{"range": "10.0.0.0/25"}]}}`

// seed puts what is right there, and each of the faults that are safe to repair.
func (c *realCluster) seed(more testenv.Object) {
	c.t.Helper()
	c.files["/etc/cni/net.d/whereabouts.d/whereabouts.conf"] = "{}"
	c.define("net", protected)
	const cidr = "10.0.0.0/24"
	allocations := testenv.Object{
		"11": c.entry("gone"), "12": c.entry("half"), "14": c.entry("done"), "15": c.entry("stuck"), "16": c.entry("again"),
		"17": c.entry("again"), "20": c.entry("live"),
		"21": testenv.Object{"id": "reserved:a printer", "podref": ""},
	}
	for key, value := range more {
		allocations[key] = value
	}
	c.pool("10.0.0.0-24", cidr, allocations)
	c.reserve("10.0.0.11", "gone", "u", cidr)
	c.pod("half", "Running", "10.0.0.12")
	c.reserve("10.0.0.13", "bare", "u", cidr)
	c.reserve("10.0.0.14", "done", c.pod("done", "Succeeded", "10.0.0.14"), cidr)
	c.reserve("10.0.0.15", "stuck", c.pod("stuck", "Running", "10.0.0.15"), cidr)
	c.cp.Must(c.t).Delete("/api/v1/namespaces/" + c.namespace + "/pods/stuck") // no kubelet: it stays, and its node is no more
	c.reserve("10.0.0.17", "again", c.pod("again", "Running", "10.0.0.17"), cidr)
	c.reserve("10.0.0.16", "again", "another-uid", cidr)
	c.reserve("10.0.0.20", "live", c.pod("live", "Running", "10.0.0.20"), cidr)
	c.cp.Must(c.t).Create(crds+c.namespace+"/overlappingrangeipreservations", testenv.Object{
		"apiVersion": "whereabouts.cni.cncf.io/v1alpha1", "kind": "OverlappingRangeIPReservation",
		"metadata": testenv.Object{"name": "10.0.0.21"},
		"spec":     testenv.Object{"podref": "", "containerid": "reserved:a printer", "range": cidr},
	})
}

type found struct{ Kind, Address, Reason, Text, Remedy string }

func (c *realCluster) check(args ...string) (map[string]found, answer) {
	c.t.Helper()
	a := c.in(append([]string{"check", "-o", "json"}, args...)...)
	var document struct{ Problems []found }
	if err := json.Unmarshal([]byte(a.stdout), &document); err != nil {
		c.t.Fatalf("%v: %+v", err, a)
	}
	all := map[string]found{}
	for _, p := range document.Problems {
		all[strings.TrimSpace(p.Kind+" "+p.Address)] = p
		if p.Remedy == "" || p.Text == "" {
			c.t.Errorf("no words: %+v", p)
		}
	}
	return all, a
}

func TestFaultsThatAreSafeAreFoundAndRepaired(t *testing.T) {
	c := newRealCluster(t)
	c.seed(nil)
	faults := map[string]string{ // and a word of what is said
		"orphan 10.0.0.11": "does not exist", "half-record 10.0.0.12": "without a reservation", "bare-reservation 10.0.0.13": "recorded nowhere",
		"orphan 10.0.0.14": "has finished", "orphan 10.0.0.15": "node does not exist", "orphan 10.0.0.16": "replaced by another one",
	}
	problems, a := c.check()
	for fault, words := range faults {
		if p, ok := problems[fault]; !ok || !strings.Contains(p.Text, words) {
			t.Errorf("%s is not found, or not with the words %q: %+v", fault, words, p)
		}
	}
	if len(problems) != len(faults) || a.exit != 1 {
		t.Errorf("%d problems, exit %d: %s", len(problems), a.exit, a.stdout)
	}
	before := fmt.Sprint(c.allocations("10.0.0.0-24"), c.reservations())
	if a := c.in("check", "--fix"); a.exit != 1 || !strings.Contains(a.stderr, "--yes") {
		t.Errorf("nobody was asked: %+v", a)
	}
	c.terminal, c.stdin = true, "no\n"
	if a := c.in("check", "--fix"); a.exit != 1 || !strings.Contains(a.stderr, "[y/N]") {
		t.Errorf("the answer was no: %+v", a)
	}
	c.terminal = false
	if now := fmt.Sprint(c.allocations("10.0.0.0-24"), c.reservations()); now != before {
		t.Fatalf("changed without a yes:\n%s\n%s", before, now)
	}
	a = c.in("check", "--fix", "--yes")
	if a.exit != 0 || !strings.Contains(a.stdout, "freed 5, completed 1, failed 0") || !strings.Contains(a.stderr, "before the second look") {
		t.Errorf("%+v", a)
	}
	if len(c.slept) == 0 {
		t.Error("it did not wait for a second look")
	}
	if a := c.in("check"); a.exit != 0 || !strings.Contains(a.stdout, "no problems") {
		t.Errorf("the second check: %+v", a)
	}
	left := c.allocations("10.0.0.0-24")
	for _, key := range []string{"12", "17", "20", "21"} {
		if left[key] == nil || !c.reservations()["10.0.0."+key] {
			t.Errorf("10.0.0.%s is gone, or its reservation: it was in use", key)
		}
	}
	if len(left) != 4 || len(c.reservations()) != 4 {
		t.Errorf("left: %v, %v", left, c.reservations())
	}
}

func TestFaultsThatAPersonHasToSeeTo(t *testing.T) {
	c := newRealCluster(t)
	c.seed(testenv.Object{
		"10": c.entry("a"), "300": c.entry("outside"), "nonsense": testenv.Object{"id": "x", "podref": "a/b"},
	})
	c.pool("10.0.0.0-25", "10.0.0.0/25", testenv.Object{"10": c.entry("b")})
	c.reserve("10.0.0.10", "a", c.pod("a", "Running", "10.0.0.10"), "10.0.0.0/24")
	c.pod("b", "Running", "10.0.0.10")
	c.reserve("10.0.1.44", "outside", c.pod("outside", "Running", "10.0.1.44"), "10.0.0.0/24")
	c.pod("stray", "Running", "10.0.0.99")
	c.pod("thief", "Running", "10.0.0.20")
	c.pool("broken", "nonsense", testenv.Object{})
	releases := filepath.Join(c.env["WHEREABOUTS_STATE_DIR"], "releases")
	if err := os.MkdirAll(releases, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(releases, "c-x@net1"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	stays := []string{
		"duplicate 10.0.0.10", "outside-range 10.0.1.44", "unreadable", "unreadable-pool", "release-queued",
		"pod-without-record 10.0.0.99", "pod-without-record 10.0.0.20",
	}
	_, a := c.check("--fix", "--yes")
	if a.exit != 1 {
		t.Errorf("exit %d, want 1", a.exit)
	}
	problems, _ := c.check()
	for _, fault := range stays {
		if _, ok := problems[fault]; !ok {
			t.Errorf("%s is not found", fault)
		}
	}
	if len(problems) != len(stays) {
		t.Errorf("after the repair: %v", problems)
	}
	if c.allocations("10.0.0.0-24")["10"] == nil || c.allocations("10.0.0.0-25")["10"] == nil || c.allocations("10.0.0.0-24")["nonsense"] == nil {
		t.Error("something was freed that nobody may say anything about")
	}
}

func TestReleaseOnACluster(t *testing.T) {
	c := newRealCluster(t)
	c.seed(nil)
	if a := c.in("release", "10.0.0.20", "--yes"); a.exit != 1 || !strings.Contains(a.stderr, "10.0.0.20 is held by pod "+c.ref("live")+" interface net1") || !strings.Contains(a.stderr, "--force") {
		t.Errorf("its pod lives: %+v", a)
	}
	if a := c.in("release", c.ref("live"), "-y"); a.exit != 1 || c.allocations("10.0.0.0-24")["20"] == nil {
		t.Errorf("the pod lives: %+v", a)
	}
	if a := c.in("release", "10.0.0.11"); a.exit != 1 || c.allocations("10.0.0.0-24")["11"] == nil {
		t.Errorf("nobody said yes: %+v", a)
	}
	for _, args := range [][]string{
		{"release", "10.0.0.11", "--yes"},
		{"release", "--force", "10.0.0.20", "-y"},
		{"release", "10.0.0.13", "--yes"},
		{"release", c.ref("done"), "--yes"},
		{"release", "10.0.0.21", "--yes", "-o", "json"},
	} {
		if a := c.in(args...); a.exit != 0 {
			t.Errorf("%v: %+v", args, a)
		}
	}
	for _, key := range []string{"11", "20", "13", "14", "21"} {
		if c.allocations("10.0.0.0-24")[key] != nil || c.reservations()["10.0.0."+key] {
			t.Errorf("10.0.0.%s is still there, or its reservation", key)
		}
	}
	if a := c.in("release", "10.0.0.11", "--yes"); a.exit != 1 || !strings.Contains(a.stderr, "nothing to release") {
		t.Errorf("again: %+v", a)
	}
}

func TestReserveOnACluster(t *testing.T) {
	c := newRealCluster(t)
	c.seed(nil)
	if a := c.in("reserve", "10.0.0.20", "--for", "a camera"); a.exit != 1 || !strings.Contains(a.stderr, "held by pod "+c.ref("live")) {
		t.Errorf("it is held: %+v", a)
	}
	for _, said := range []string{"is kept", "is already kept"} {
		if a := c.in("reserve", "10.0.0.50", "--for", "a camera"); a.exit != 0 || !strings.Contains(a.stdout, said) {
			t.Errorf("%+v", a)
		}
	}
	entry, _ := c.allocations("10.0.0.0-24")["50"].(map[string]any)
	if entry["id"] != "reserved:a camera" || entry["podref"] != "" || !c.reservations()["10.0.0.50"] {
		t.Errorf("%v", entry)
	}
	if a := c.in("show", "10.0.0.50"); !strings.Contains(a.stdout, `for "a camera"`) {
		t.Errorf("%+v", a)
	}
}

func TestLintOfADefinition(t *testing.T) {
	c := newRealCluster(t)
	c.define("net", protected)
	c.define("other", `{"name": "o", "ipam": {"type": "whereabouts", "range": "10.0.0.0/26", "network_name": "another"}}`)
	a := c.in("lint", c.ref("net"), "-o", "json")
	for _, words := range []string{c.ref("other"), `another network_name`, `"range": "10.0.0.0/24"`, "overlap"} {
		if a.exit != 0 || !strings.Contains(a.stdout, words) {
			t.Errorf("no word of %q: %+v", words, a)
		}
	}
	if strings.Contains(a.stdout, "definition "+c.ref("net")) {
		t.Errorf("it is compared with itself: %s", a.stdout)
	}
	if a := c.in("lint", c.ref("nothing")); a.exit != 1 {
		t.Errorf("%+v", a)
	}
}

// The credentials on a node reach the records of one namespace; who has an address is
// asked there most of all.
func TestRecordsAreShownWithTheCredentialsOfANode(t *testing.T) {
	c := newRealCluster(t)
	c.seed(nil)
	c.bind(testenv.User1)
	c.env["KUBECONFIG"] = c.cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace, User: testenv.User1})
	for _, args := range [][]string{{"show"}, {"show", "10.0.0.20"}, {"show", c.ref("live")}, {"show", "10.0.0.0-24"}} {
		a := c.run(args...)
		if a.exit != 0 || !strings.Contains(a.stdout, "10.0.0.") {
			t.Errorf("%v: %+v", args, a)
		}
	}
	if a := c.run("check"); a.exit == 0 || !strings.Contains(a.stdout+a.stderr, "records in other namespaces than "+c.namespace) {
		t.Errorf("check does not say what it could not see: %+v", a)
	}
	c.env["KUBECONFIG"] = c.cp.Kubeconfig(t, testenv.Options{Namespace: c.namespace, User: testenv.Nobody})
	if a := c.run("show"); a.exit != 2 || !strings.Contains(a.stderr, "forbidden") {
		t.Errorf("without any right: %+v", a)
	}
}

// bind gives a user what the plugin on a node may do.
func (c *realCluster) bind(user string) {
	c.t.Helper()
	data, err := os.ReadFile("../../manifests/base/plugin.yaml")
	if err != nil {
		c.t.Fatal(err)
	}
	const rbac = "/apis/rbac.authorization.k8s.io/v1/"
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role testenv.Object
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			c.t.Fatal(err)
		}
		if role.String("kind") != "ClusterRole" {
			continue
		}
		role["kind"] = "Role"
		c.cp.Must(c.t).Create(rbac+"namespaces/"+c.namespace+"/roles", role)
		c.cp.Must(c.t).Create(rbac+"namespaces/"+c.namespace+"/rolebindings", testenv.Object{
			"metadata": testenv.Object{"name": user},
			"roleRef":  testenv.Object{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.Name()},
			"subjects": []any{testenv.Object{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}},
		})
		return
	}
	c.t.Fatal("manifests/base/plugin.yaml has no ClusterRole")
}
