package ipcontrol

import (
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestAddressInSeveralPoolsHasToBeChosen(t *testing.T) {
	l := newLocalStore(t)
	for _, network := range []string{"", "storage", "video"} {
		l.take(poolID(network, "10.0.0.0/24"), true, map[string]ipam.Record{"10.0.0.1": record("a/pod"+network, "c"+network, time.Hour)})
	}
	s := newShell(t)
	s.golden("choose", map[string]string{"$FILE": l.path},
		"release 10.0.0.1 --yes --force --local $FILE",
		"release 10.0.0.1 --yes --local $FILE --network storage",
		"release 10.0.0.1 --force --local $FILE --network storage",
		"release 10.0.0.1 --yes --force --local $FILE --network storage",
		"release 10.0.0.1 --yes --force --pool video-10.0.0.0-24 --local $FILE -o json",
		"release 10.0.0.1 --yes --force --network storage --local $FILE",
		"release a/nobody --yes --force --local $FILE",
		"release nonsense --local $FILE",
		"show 10.0.0.1 --local $FILE",
		"reserve 10.0.0.1 --for it --local $FILE",
		"reserve 10.0.0.1 --for it --network video --local $FILE",
		"reserve 10.0.0.1 --for it --network video --local $FILE -o yaml",
		"reserve 10.0.0.1 --for else --network video --local $FILE",
		"reserve 10.1.0.1 --for it --local $FILE",
		"reserve 10.1.0.1 --for it --pool 10.2.0.0/16 --local $FILE",
		"reserve 10.1.0.1 --for it --pool 10.1.0.0/16 --network new --local $FILE",
		"release 10.1.0.1 --yes --local $FILE",
		"show --local $FILE",
	)
}

// hook is a person who does something else before the answer.
type hook struct {
	io.Reader
	before func()
}

func (h *hook) Read(p []byte) (int, error) {
	if h.before != nil {
		h.before()
		h.before = nil
	}
	return h.Reader.Read(p)
}

func TestRecordThatChangesMeanwhileIsLeftAlone(t *testing.T) {
	l := newLocalStore(t)
	id := poolID("", "10.0.0.0/24")
	before := record("a/b", "c", time.Hour)
	l.take(id, true, map[string]ipam.Record{"10.0.0.1": before})
	after := before
	after.Gen = "00000002"
	var stdout, stderr strings.Builder
	o := options{local: l.path, output: "table", Env: Env{
		Getenv: func(string) string { return "" }, ReadFile: newShell(t).readFile, Stdout: &stdout, Stderr: &stderr,
		Now: func() time.Time { return fixedNow }, Terminal: func(any) bool { return true },
		Stdin: &hook{strings.NewReader("yes\n"), func() {
			err := l.Commit(t.Context(), []ipam.Change{{Pool: id, Address: netip.MustParseAddr("10.0.0.1"), Before: &before, After: &after, Overlap: true}})[0]
			if err != nil {
				t.Error(err)
			}
		}},
	}}
	a, err := o.open()
	if err != nil {
		t.Fatal(err)
	}
	err = releaser{options: o, access: a, force: true}.release(t.Context(), "10.0.0.1")
	if err == nil || !strings.Contains(err.Error(), "has changed since") {
		t.Errorf("%v", err)
	}
	pool, err := l.Read(t.Context(), id)
	if err != nil || pool.Records[netip.MustParseAddr("10.0.0.1")].Gen != "00000002" {
		t.Errorf("%v, %v", pool, err)
	}
}

func TestDatastoreIsFound(t *testing.T) {
	l := newLocalStore(t)
	l.take(poolID("", "10.0.0.0/24"), true, map[string]ipam.Record{"10.0.0.1": record("a/b", "c", time.Hour)})
	c := newSeededCluster(t)
	c.pool("kube-system", "10.7.0.0-24", "10.7.0.0/24", object{})
	kubeconfig := c.kubeconfig()
	const flat = "/etc/cni/net.d/whereabouts.d/whereabouts.conf"
	for name, test := range map[string]struct {
		env, files map[string]string
		args       []string
		exit       int
		says       string
	}{
		"option":                 {nil, nil, []string{"--kubeconfig", kubeconfig}, 0, "10.7.0.0/24"},
		"environment":            {map[string]string{"KUBECONFIG": kubeconfig + ":/other"}, nil, nil, 0, "10.7.0.0/24"},
		"flat file":              {nil, map[string]string{flat: `{"kubernetes": {"kubeconfig": "` + kubeconfig + `"}}`}, nil, 0, "10.7.0.0/24"},
		"flat file, local":       {nil, map[string]string{flat: `{"datastore": "local", "local_path": "` + l.path + `"}`}, nil, 0, "10.0.0.0/24"},
		"flat file, etcd":        {nil, map[string]string{flat: `{"datastore": "etcd", "etcd_host": "ftp://e"}`}, nil, 2, "etcd_host"},
		"broken flat file":       {nil, map[string]string{flat: `{`}, nil, 2, "flat file"},
		"option over flat file":  {nil, map[string]string{flat: `{"datastore": "local", "local_path": "/nowhere"}`}, []string{"--kubeconfig", kubeconfig}, 0, "10.7.0.0/24"},
		"local over environment": {map[string]string{"KUBECONFIG": kubeconfig}, nil, []string{"--local", l.path}, 0, "10.0.0.0/24"},
		"local over flat file":   {nil, map[string]string{flat: `{"datastore": "local", "local_path": "/nowhere"}`}, []string{"--local", l.path}, 0, "10.0.0.0/24"},
		"own kubeconfig":         {map[string]string{"HOME": "/home/me"}, map[string]string{"/home/me/.kube/config": ""}, nil, 2, "/home/me/.kube/config"},
		"none":                   {nil, nil, nil, 2, "no cluster found"},
	} {
		s := newShell(t)
		for key, value := range test.env {
			s.env[key] = value
		}
		for path, text := range test.files {
			s.files[path] = text
		}
		a := s.run(append([]string{"show"}, test.args...)...)
		if a.exit != test.exit || !strings.Contains(a.stdout+a.stderr, test.says) {
			t.Errorf("%s: want exit %d and %q: %+v", name, test.exit, test.says, a)
		}
	}
}

func TestReservedAddressWithoutItsReservation(t *testing.T) {
	c := newSeededCluster(t)
	c.pool("kube-system", "10.0.0.0-24", "10.0.0.0/24", object{"3": object{"id": "reserved:a printer", "podref": ""}})
	s := newShell(t)
	a := s.run("check", "-o", "yaml", "--kubeconfig", c.kubeconfig())
	if a.exit != 1 || !strings.Contains(a.stdout, "kind: half-record") || !strings.Contains(a.stdout, "safe: false") {
		t.Errorf("%+v", a)
	}
}

func TestLint(t *testing.T) {
	s := newShell(t)
	for name, text := range map[string]string{
		"good.json": `{"name": "net", "type": "bridge", "ipam": {"type": "whereabouts", "range": "192.168.2.225/28", "exclude": ["192.168.2.228/30"], "gateway": "192.168.2.225"}}`,
		"odd.json": `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "macvlan", "ipam": {"type": "whereabouts", "range": "10.5.0.0/20",
			"exclude": ["10.5.0.9/29"], "rangeStrat": "10.5.0.4", "range_end": "10.9.0.1",
			"ipRanges": [{"range": "10.5.4.0/24", "range_start": "10.5.4.50", "range_end": "10.5.4.20", "gateway": "10.6.0.1"}]}}]}`,
		"bad.json":     `{"name": "net", "ipam": {"type": "whereabouts", "range": "10.0.0.0/33", "exclude": ["x"], "node_slice_size": "x"}}`,
		"slices.json":  `{"name": "net", "ipam": {"type": "whereabouts", "range": "10.5.0.0/20", "node_slice_size": "/24", "network_name": "storage", "ipRanges": [{"range": "fd00::/20"}]}}`,
		"six.json":     `{"name": "net", "ipam": {"type": "whereabouts", "range": "2001:db8::/30", "exclude": ["2001:db8::/32"]}}`,
		"none.json":    `{"name": "net", "ipam": {"type": "host-local"}}`,
		"nothing.json": `{"name": "net", "ipam": {"type": "whereabouts", "range": "10.0.0.0/30", "exclude": ["10.0.0.0/30"]}}`,
		"syntax.json":  "{\n \"name\": x}",
		"object.json":  `{"kind": "NetworkAttachmentDefinition", "spec": {"config": "{\"name\": \"n\", \"ipam\": {\"type\": \"whereabouts\", \"range\": \"10.0.0.0/24\"}}"}}`,
	} {
		s.files[name] = text
	}
	s.stdin = s.files["good.json"]
	s.golden("lint", nil, "lint good.json", "lint good.json -o json", "lint -", "lint odd.json", "lint odd.json -o yaml", "lint bad.json", "lint slices.json",
		"lint six.json", "lint none.json", "lint nothing.json", "lint syntax.json", "lint object.json", "lint good.json --pod-cidr 192.168.0.0/16 --service-cidr 10.96.0.0/12")
}

func TestLintComparesWithTheCluster(t *testing.T) {
	c := newSeededCluster(t)
	c.define("default", "same", `{"name": "a", "ipam": {"type": "whereabouts", "range": "10.0.0.0/16"}}`)
	c.define("default", "inside", `{"name": "a", "ipam": {"type": "whereabouts", "range": "10.0.4.0/24"}}`)
	c.define("default", "unprotected", `{"name": "a", "ipam": {"type": "whereabouts", "range": "10.0.5.0/24", "enable_overlapping_ranges": false}}`)
	c.define("default", "elsewhere", `{"name": "a", "ipam": {"type": "whereabouts", "range": "10.0.6.0/24", "network_name": "other"}}`)
	c.define("default", "apart", `{"name": "a", "ipam": {"type": "whereabouts", "range": "10.1.0.0/24"}}`)
	c.create("", "v1", "Node", "nodes", "", object{"metadata": object{"name": "node1"}, "spec": object{"podCIDR": "10.0.7.0/24", "podCIDRs": []string{"10.0.7.0/24"}}})
	s := newShell(t)
	s.files["net.json"] = `{"name": "net", "ipam": {"type": "whereabouts", "range": "10.0.0.0/16", "ipRanges": [{"range": "10.96.3.0/24"}]}}`
	s.env["KUBECONFIG"] = c.kubeconfig()
	s.golden("lint-cluster", nil, "lint net.json", "lint default/apart", "lint default/none")
}
