package integration

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

// guarded is an etcd with TLS, client certificates and logins, and a configuration that
// it accepts.
type guarded struct {
	*testenv.SecureEtcd
	good Object
}

func newGuarded(t *testing.T) *guarded {
	g := &guarded{SecureEtcd: testenv.StartSecureEtcd(t)}
	for _, step := range []struct {
		path string
		body Object
	}{
		{"user/add", Object{"name": "root", "password": "root's own"}},
		{"user/grant", Object{"user": "root", "role": "root"}},
		{"role/add", Object{"name": "records"}},
		{"role/grant", Object{"name": "records", "perm": Object{
			"permType": "READWRITE", "key": []byte("/whereabouts-records/"), "range_end": []byte("/whereabouts-records0"),
		}}},
		{"user/add", Object{"name": "whereabouts", "password": "sesame"}},
		{"user/grant", Object{"user": "whereabouts", "role": "records"}},
		{"user/add", Object{"name": "guest", "password": "sesame"}},
		{"enable", Object{}},
	} {
		if err := g.Call("/v3/auth/"+step.path, step.body, nil); err != nil {
			t.Fatalf("%s: %v", step.path, err)
		}
	}
	cert, key := g.Client(t, "", time.Now().Add(time.Hour))
	g.good = Object{
		"range": "10.23.0.0/24", "etcd_ca_cert_file": g.File, "etcd_cert_file": cert, "etcd_key_file": key,
		"etcd_username": "whereabouts", "etcd_password": "sesame",
	}
	return g
}

// but is the good configuration with other values.
func (g *guarded) but(change Object) Object { return inEtcd(g.Endpoints(), with(g.good, change)) }

// isEmpty looks with the rights of the plugin.
func (g *guarded) isEmpty(t *testing.T) {
	t.Helper()
	etcdHoldsNothing(t, ipam.EtcdConfig{
		Endpoints: []string{g.Endpoints()}, CAFile: g.good["etcd_ca_cert_file"].(string),
		CertFile: g.good["etcd_cert_file"].(string), KeyFile: g.good["etcd_key_file"].(string),
		Username: "whereabouts", Password: "sesame",
	})
}

// With certificates and a login that etcd does not accept ADD fails, with an error that
// names the key, and gives no address. DEL succeeds where time or an administrator may
// help, and its release is carried out by the next call that is let in.
func TestEtcdWithTLSAndLogin(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	good := g.but(nil)
	newNode(t, "host-0").add(t, pod("well"), good).gets(t, "10.23.0.1/24")

	hour := time.Hour
	old, oldKey := g.Client(t, "", time.Now().Add(-time.Minute))
	stranger := testenv.NewAuthority(t, "another CA")
	foreign, foreignKey := stranger.Client(t, "", time.Now().Add(hour))
	named, namedKey := g.Client(t, "host-1", time.Now().Add(hour))
	second, _ := g.Client(t, "", time.Now().Add(hour))
	noPEM := filepath.Join(t.TempDir(), "no.pem")
	if err := os.WriteFile(noPEM, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		change Object
		code   int // of ADD
		says   string
		stuck  bool // DEL fails like ADD: another configuration is needed before anything can be tried
	}{
		"another authority":                    {Object{"etcd_ca_cert_file": stranger.File}, 7, "etcd_ca_cert_file", false},
		"no authority":                         {Object{"etcd_ca_cert_file": ""}, 7, "etcd_ca_cert_file", false},
		"no such authority":                    {Object{"etcd_ca_cert_file": "/no/such/file"}, 7, "etcd_ca_cert_file", true},
		"authority that is none":               {Object{"etcd_ca_cert_file": noPEM}, 7, "etcd_ca_cert_file", true},
		"no certificate of our own":            {Object{"etcd_cert_file": "", "etcd_key_file": ""}, 7, "etcd_cert_file", false},
		"a certificate without its key":        {Object{"etcd_key_file": ""}, 7, "set both or none", true},
		"the certificate of a stranger":        {Object{"etcd_cert_file": foreign, "etcd_key_file": foreignKey}, 7, "etcd_cert_file", false},
		"a certificate and another one's key":  {Object{"etcd_cert_file": second}, 7, "etcd_cert_file", true},
		"a certificate that is none":           {Object{"etcd_cert_file": noPEM}, 7, noPEM, true},
		"a certificate that has run out":       {Object{"etcd_cert_file": old, "etcd_key_file": oldKey}, 11, "expired at", false},
		"a certificate with a common name":     {Object{"etcd_cert_file": named, "etcd_key_file": namedKey}, 7, "without a common name", false},
		"wrong password":                       {Object{"etcd_password": "secret"}, 7, "etcd_password", false},
		"unknown user":                         {Object{"etcd_username": "nobody"}, 7, "nobody", false},
		"no user":                              {Object{"etcd_username": "", "etcd_password": ""}, 7, "etcd_username", false},
		"a user without rights on the records": {Object{"etcd_username": "guest"}, 102, "guest", false},
		"an address without its certificate":   {Object{"etcd_host": strings.Replace(g.Endpoints(), "https", "http", 1)}, 11, "write https://", false},
	}
	t.Run("configurations", func(t *testing.T) {
		for i, name := range slices.Sorted(maps.Keys(cases)) {
			test := cases[name]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				n := newNode(t, fmt.Sprint("host-", i))
				bad := g.but(test.change)
				n.add(t, pod("held-"+n.name), good).getsNear(t, netip.MustParseAddr("10.23.0.2"))
				text := n.add(t, pod("late-"+n.name), bad).fails(t, test.code)
				if !strings.Contains(text, test.says) || strings.Contains(text, "secret") || strings.Contains(text, "sesame") {
					t.Errorf("the error is %s, want one with %q and without a password", text, test.says)
				}
				if held := n.del(t, pod("held-"+n.name), bad); test.stuck {
					held.fails(t, test.code)
					n.del(t, pod("held-"+n.name), good).ok(t)
				} else {
					held.ok(t)
				}
				n.del(t, pod("late-"+n.name), good).ok(t)
				if left := n.queued(t); len(left) > 0 {
					t.Errorf("%v is left in the queue", left)
				}
			})
		}
	})

	t.Run("the certificate of etcd has run out", func(t *testing.T) {
		n := newNode(t, "host-1")
		n.add(t, pod("held"), good).gets(t, "10.23.0.2/24")
		g.Renew(t, time.Now().Add(-time.Minute))
		if text := n.add(t, pod("late"), good).fails(t, 11); !strings.Contains(text, "out of date") {
			t.Errorf("the error is %s", text)
		}
		n.del(t, pod("held"), good).ok(t)
		g.Renew(t, time.Now().Add(hour))
		n.del(t, pod("late"), good).ok(t)
	})
	newNode(t, "host-0").del(t, pod("well"), good).ok(t)
	g.isEmpty(t)
}
