package history

import (
	"context"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
)

// etcdStore is an etcd of three members, each in a network namespace of its own.
type etcdStore struct {
	cluster *testenv.Etcd
	atlas   *atlas
	direct  ipam.Store // on a way that no fault befalls
}

var _ datastore = (*etcdStore)(nil)

func newEtcdStore(t *testing.T, a *atlas) datastore {
	e := &etcdStore{cluster: testenv.StartEtcdApart(t, 3), atlas: a}
	proxies, ca := e.cluster.Proxies(t)
	cfg := ipam.EtcdConfig{CAFile: ca}
	for _, p := range proxies {
		cfg.Endpoints = append(cfg.Endpoints, p.URL)
	}
	direct, err := etcd.Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = direct.Close() })
	e.direct = direct
	return e
}

func (e *etcdStore) reach(t *testing.T, n *node) {
	proxies, ca := e.cluster.Proxies(t)
	var urls []string
	for _, p := range proxies {
		urls = append(urls, p.URL)
	}
	n.proxies = proxies
	n.settings = Object{"datastore": "etcd", "etcd_host": strings.Join(urls, ","), "etcd_ca_cert_file": ca}
}

// enough is how long the test itself waits for servers that are away.
const enough = 20 * time.Second

func (e *etcdStore) read(ctx context.Context) (all map[place]*stored, unknown []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	snapshot, err := e.direct.Snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	all = map[place]*stored{}
	at := func(space string, p place) *stored {
		if e.atlas.byPlace[p] == nil {
			unknown = append(unknown, space+" "+p.String())
			return newStored()
		}
		return storedAt(all, p)
	}
	for _, pool := range snapshot.Pools {
		unknown = append(unknown, pool.Bad...)
		for a, r := range pool.Records {
			at(pool.ID.String(), place{pool.ID.Network, a}).entries[pool.ID.String()] = Object{"id": r.ContainerID, "podref": r.PodRef, "ifname": r.IfName}
		}
	}
	for _, r := range snapshot.Reservations {
		at("reservation", place{r.Space, r.Address}).reservation = Object{"containerid": r.ContainerID, "podref": r.PodRef, "ifname": r.IfName, "uid": r.UID}
	}
	return all, unknown, nil
}

func (e *etcdStore) age(ctx context.Context, n *node, net *network) map[string]place {
	ctx, cancel := context.WithTimeout(ctx, enough)
	defer cancel()
	aged := map[string]place{}
	snapshot, err := e.direct.Snapshot(ctx)
	if err != nil {
		return aged
	}
	for _, pool := range snapshot.Pools {
		for a, r := range pool.Records {
			if r.Node != n.name || r.Network != net.name {
				continue
			}
			old := r
			old.Since = r.Since.Add(-time.Hour)
			change := ipam.Change{Pool: pool.ID, Address: a, Before: &r, After: &old, Overlap: !net.unprotected}
			if e.direct.Commit(ctx, []ipam.Change{change})[0] == nil {
				aged[r.ContainerID] = place{pool.ID.Network, a}
			}
		}
	}
	return aged
}

func (e *etcdStore) holder(ctx context.Context, p place) string {
	all, _, err := e.read(ctx)
	if err != nil || all[p] == nil {
		return ""
	}
	for _, entry := range all[p].entries {
		return entry.String("id")
	}
	return ""
}

// outages are of one member at a time: two of three go on.
func (e *etcdStore) outages() []outage { return e.cluster.Troubles() }

func (e *etcdStore) isWrite(r testenv.Request) bool {
	body := string(r.Body)
	return strings.Contains(body, `"request_put"`) || strings.Contains(body, `"request_delete_range"`)
}

var binaryField = regexp.MustCompile(`"(key|value|range_end)":"([^"]*)"`)

// say decodes keys and values, which are base64.
func (e *etcdStore) say(r testenv.Request) (what, body string) {
	body = binaryField.ReplaceAllStringFunc(string(r.Body), func(field string) string {
		parts := binaryField.FindStringSubmatch(field)
		text, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil {
			return field
		}
		return parts[1] + " " + string(text)
	})
	return r.Path, body
}

// mentions looks for the address with all its digits, as keys have it.
func (e *etcdStore) mentions(w wire, s *slot) bool {
	name := s.address.StringExpanded()
	if s.address.Is4() {
		b := s.address.As4()
		name = fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3])
	}
	return strings.Contains(w.body, "/network_name="+s.space+"/") && strings.Contains(w.body, "/"+name)
}

// lateTraces is false: a release fences its container off.
func (e *etcdStore) lateTraces() bool { return false }
