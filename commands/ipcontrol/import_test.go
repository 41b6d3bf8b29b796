package ipcontrol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// putKey writes a key as version 0.5 did.
func putKey(t *testing.T, endpoint, key, value string) {
	t.Helper()
	body, err := json.Marshal(map[string][]byte{"key": []byte(key), "value": []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(endpoint+"/v3/kv/put", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
}

func TestImportFromEtcd(t *testing.T) {
	endpoint := testenv.StartEtcd(t, 1).Endpoints()
	putKey(t, endpoint, "/whereabouts/10.0.0.0-24", "10.0.0.1 c1\n10.0.0.7 c7\n")
	putKey(t, endpoint, "/whereabouts/fd00---64", "fd00::1 c1\n")
	s := newShell(t)
	s.files["/etc/cni/net.d/whereabouts.d/whereabouts.conf"] = fmt.Sprintf(`{"datastore": "etcd", "etcd_host": %q}`, endpoint)
	want := func(exit int, says string, args ...string) {
		t.Helper()
		a := s.run(args...)
		if a.exit != exit || !strings.Contains(a.stdout+a.stderr, says) {
			t.Errorf("%v: exit %d, want %d and %q\n%s%s", args, a.exit, exit, says, a.stdout, a.stderr)
		}
	}
	want(2, "needs --from-etcd", "import")
	want(0, "10.0.0.7 held by container c7", "import", "--from-etcd", "--dry-run")
	want(1, "say --yes", "import", "--from-etcd")
	if a := s.run("show", "-o", "json"); strings.Contains(a.stdout, "10.0.0.0/24") {
		t.Errorf("a dry run took records over: %s", a.stdout)
	}
	want(0, "took over 3 of 3", "import", "--from-etcd", "--yes")
	want(0, "took over 3 of 3", "import", "--from-etcd", "--yes") // again
	want(0, "c7", "show", "10.0.0.7")
	want(0, "", "check")
	want(0, "", "release", "10.0.0.7", "--yes", "--force")
	want(0, "kept out of circulation", "reserve", "10.0.0.7", "--for", "a printer", "--pool", "10.0.0.0/24")
	putKey(t, endpoint, "/whereabouts/10.0.0.0-24", "10.0.0.7 c7\nhello\n")
	want(1, "took over 1 of 2", "import", "--from-etcd", "--yes") // the printer stays
	want(0, "a printer", "show", "10.0.0.7")
	want(1, "1 lines cannot be taken over", "import", "--from-etcd", "--dry-run")
}

// Beside a kubeconfig the records go to the cluster, whatever datastore the flat file
// names: an old configuration names etcd.
func TestImportFromEtcdIntoACluster(t *testing.T) {
	c := newRealCluster(t)
	endpoint := testenv.StartEtcd(t, 1).Endpoints()
	putKey(t, endpoint, "/whereabouts/10.210.0.0-24", "10.210.0.1 c1\n10.210.0.7 c7\n")
	c.files["/etc/cni/net.d/whereabouts.d/whereabouts.conf"] = fmt.Sprintf(`{"datastore": "etcd", "etcd_host": %q}`, endpoint)

	if a := c.in("import", "--from-etcd", "--dry-run"); a.exit != 0 || !strings.Contains(a.stdout, "10.210.0.7 held by container c7") {
		t.Errorf("dry run: %d\n%s%s", a.exit, a.stdout, a.stderr)
	}
	if got := c.reservations(); len(got) != 0 {
		t.Errorf("a dry run made the reservations %v", got)
	}
	if a := c.in("import", "--from-etcd", "--yes"); a.exit != 0 || !strings.Contains(a.stdout, "took over 2 of 2") {
		t.Errorf("import: %d\n%s%s", a.exit, a.stdout, a.stderr)
	}
	if got := c.allocations("10.210.0.0-24"); len(got) != 2 {
		t.Errorf("the pool has %v", got)
	}
	if got := c.reservations(); !got["10.210.0.1"] || !got["10.210.0.7"] || len(got) != 2 {
		t.Errorf("the reservations are %v", got)
	}
	if found, a := c.check(); a.exit != 0 {
		t.Errorf("check: %v\n%s%s", found, a.stdout, a.stderr)
	}
}
