package integration

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
)

// inEtcd is a network whose records are in an etcd.
func inEtcd(endpoints string, ipam Object) Object {
	full := with(Object{"type": "whereabouts", "datastore": "etcd", "etcd_host": endpoints}, ipam)
	return Object{"cniVersion": "1.1.0", "name": "net-a", "type": "bridge", "ipam": full}
}

// etcdIsEmpty looks for contradictions and for records that nobody released.
func etcdIsEmpty(t *testing.T, endpoints string) {
	t.Helper()
	etcdHoldsNothing(t, ipam.EtcdConfig{Endpoints: strings.Split(endpoints, ",")})
}

func etcdHoldsNothing(t *testing.T, cfg ipam.EtcdConfig) {
	t.Helper()
	s, err := etcd.Open(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, finding := range ipam.Check(snapshot, ipam.CheckOptions{NeedsReservation: func(ipam.PoolID, ipam.Record) bool { return true }}) {
		t.Error(finding.Text)
	}
	for _, p := range snapshot.Pools {
		for a, r := range p.Records {
			t.Errorf("%s of %s is still held by container %s", a, p.ID, r.ContainerID)
		}
	}
}

func TestEtcdServesAllVerbs(t *testing.T) {
	t.Parallel()
	endpoints := testenv.StartEtcd(t, 1).Endpoints()
	n, elsewhere := newNode(t, "host-1"), newNode(t, "host-2")
	config := inEtcd(endpoints, Object{"range": "10.23.0.0/30", "gateway": "10.23.0.3", "ipRanges": []Object{{"range": "fd00:23::/64"}}})
	n.status(t, config).ok(t)
	result := n.add(t, pod("a"), config).gets(t, "10.23.0.1/30", "fd00:23::1/64").result
	elsewhere.add(t, withoutPod("plain"), config).gets(t, "10.23.0.2/30", "fd00:23::2/64")
	n.add(t, pod("late"), config).fails(t, 11)
	n.check(t, pod("a"), config, result).ok(t)
	n.check(t, pod("b"), config, result).failsSomehow(t)

	result = elsewhere.add(t, pod("a").in("a-c2"), config).gets(t, "10.23.0.1/30", "fd00:23::1/64").result
	n.del(t, pod("a"), config).ok(t) // late
	n.check(t, pod("a").in("a-c2"), config, result).ok(t)
	n.gc(t, config, validAttachments, nil).ok(t) // nothing is older than a minute
	n.check(t, pod("a").in("a-c2"), config, result).ok(t)

	wide := inEtcd(endpoints, Object{"range": "10.23.0.0/16"})
	n.add(t, pod("w"), wide).getsNear(t, netip.MustParseAddr("10.23.0.3"))
	n.add(t, pod("o"), withIPAM(wide, Object{"network_name": "other"})).gets(t, "10.23.0.1/16")
	n.del(t, pod("w"), wide).ok(t)
	n.del(t, pod("o"), withIPAM(wide, Object{"network_name": "other"})).ok(t)
	elsewhere.del(t, pod("a").in("a-c2"), config).ok(t)
	elsewhere.forgetful(t).del(t, withoutPod("plain"), config).ok(t)
	etcdIsEmpty(t, endpoints)
}

func TestManyAtOnceOnEtcd(t *testing.T) {
	endpoints := testenv.StartEtcd(t, 1).Endpoints()
	for _, hosts := range []int{1, 20} {
		config := inEtcd(endpoints, Object{"range": "10.23.0.0/16"})
		var nodes []node
		for i := range hosts {
			nodes = append(nodes, newNode(t, fmt.Sprint("host-", i)))
		}
		const all, together = 200, 40
		each := func(f func(n node, s sandbox) answer) []answer {
			room := make(chan struct{}, together)
			return atOnce(all, func(i int) answer {
				room <- struct{}{}
				defer func() { <-room }()
				return f(nodes[i%hosts], pod(fmt.Sprint("p", i)))
			})
		}
		began := time.Now()
		added := each(func(n node, s sandbox) answer { return n.add(t, s, config) })
		t.Logf("%d ADDs, %d at once over %d hosts: %s", all, together, hosts, time.Since(began).Round(time.Millisecond))
		distinct(t, added, nil)
		for _, a := range each(func(n node, s sandbox) answer { return n.del(t, s, config) }) {
			a.ok(t)
		}
		etcdIsEmpty(t, endpoints)
	}
}

// churn is pods that come and go on one host, some of whose calls are killed.
type churn struct {
	*testing.T
	config Object
	held   *sync.Map // address to pod
	rounds atomic.Int64
	kills  atomic.Int64
}

func (c *churn) host(n node, stop <-chan struct{}) (killed []sandbox) {
	rng := rand.New(rand.NewPCG(1, uint64(len(n.name))))
	for i := 0; ; i++ {
		select {
		case <-stop:
			return killed
		default:
		}
		s := pod(fmt.Sprintf("%s-%d", n.name, i))
		if rng.IntN(4) == 0 {
			p := n.start(c, call{command: "ADD", sandbox: s, config: c.config})
			time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
			p.kill()
			p.wait()
			c.kills.Add(1)
			killed = append(killed, s)
			continue
		}
		c.life(n, s)
	}
}

// life is one pod's.
func (c *churn) life(n node, s sandbox) {
	a := n.add(c, s, c.config)
	if a.exit != 0 {
		c.Errorf("ADD failed\n%s", a)
		return
	}
	for _, address := range a.ips() {
		if other, taken := c.held.LoadOrStore(address, s.pod); taken {
			c.Errorf("%s was given to %s while %v had it", address, s.pod, other)
		}
	}
	if checked := n.check(c, s, c.config, a.result); checked.exit != 0 {
		c.Errorf("CHECK failed\n%s", checked)
	}
	for _, address := range a.ips() {
		c.held.Delete(address)
	}
	if d := n.del(c, s, c.config); d.exit != 0 {
		c.Errorf("DEL failed\n%s", d)
	}
	c.rounds.Add(1)
}

// progress waits until some more pods have come and gone.
func (c *churn) progress(more int64) {
	c.Helper()
	goal, deadline := c.rounds.Load()+more, time.Now().Add(4*time.Minute)
	for c.rounds.Load() < goal && !c.Failed() {
		if time.Now().After(deadline) {
			c.Fatal("pods neither come nor go any more")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestThreeMembers lets pods come and go on four hosts while a member is killed and
// started again, the leader moves, the leader is killed, and one endpoint takes
// connections but never answers.
func TestThreeMembers(t *testing.T) {
	cluster := testenv.StartEtcd(t, 3)
	silent := cluster.Members[0].Proxy(t)
	ca := t.TempDir() + "/ca.pem"
	if err := os.WriteFile(ca, silent.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &churn{T: t, held: &sync.Map{}, config: inEtcd(cluster.Endpoints()+","+silent.URL, Object{
		"range": "10.23.0.0/24", "ipRanges": []Object{{"range": "10.23.0.0/16"}}, "etcd_ca_cert_file": ca,
	})}
	stop := make(chan struct{})
	var hosts sync.WaitGroup
	killed := make([][]sandbox, 4)
	var nodes []node
	for i := range killed {
		n := newNode(t, fmt.Sprint("host-", i))
		nodes = append(nodes, n)
		hosts.Go(func() { killed[i] = c.host(n, stop) })
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	leader := func() *testenv.Member {
		m, err := cluster.Leader()
		must(err)
		return m
	}
	c.progress(20)
	for _, m := range []*testenv.Member{cluster.Members[1], leader()} {
		m.Kill()
		c.progress(10)
		must(m.Start())
		must(m.WaitHealthy())
	}
	for _, m := range cluster.Members {
		must(cluster.MoveLeader(m))
		c.progress(5)
	}
	silent.Inject(testenv.Rule{Times: testenv.Always, Action: testenv.Hang()})
	c.progress(20)
	close(stop)
	hosts.Wait()
	silent.Reset()
	for i, n := range nodes {
		for _, s := range killed[i] {
			n.del(t, s, c.config).ok(t)
		}
		n.del(t, pod("last"), c.config).ok(t) // carries out what is queued
	}
	t.Logf("%d pods came and went, %d ADDs were killed", c.rounds.Load(), c.kills.Load())
	etcdIsEmpty(t, cluster.Endpoints())
}

// While etcd is away DEL succeeds and is queued; the next call on the host carries it out,
// and what was added again meanwhile stays.
func TestReleaseQueueOnEtcd(t *testing.T) {
	t.Parallel()
	cluster := testenv.StartEtcd(t, 1)
	n, config := newNode(t, "host-1"), inEtcd(cluster.Endpoints(), Object{"range": "10.23.0.0/24"})
	n.add(t, pod("a"), config).gets(t, "10.23.0.1/24")
	n.add(t, pod("b"), config).gets(t, "10.23.0.2/24")

	cluster.Members[0].Kill()
	for _, name := range []string{"a", "b"} {
		n.del(t, pod(name), config).ok(t)
	}
	if queued := n.queued(t); len(queued) != 2 {
		t.Errorf("queued are %v, want both releases", queued)
	}
	if err := cluster.Members[0].Start(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Members[0].WaitHealthy(); err != nil {
		t.Fatal(err)
	}

	// The same container again: its queued release is of the time before.
	again := n.add(t, pod("b"), config).gets(t, "10.23.0.2/24")
	if queued := n.queued(t); len(queued) > 0 {
		t.Errorf("%v are queued after a call", queued)
	}
	n.check(t, pod("b"), config, again.result).ok(t)
	newNode(t, "host-2").add(t, pod("c"), config).gets(t, "10.23.0.1/24")
	newNode(t, "host-2").del(t, pod("c"), config).ok(t)
	n.del(t, pod("b"), config).ok(t)
	etcdIsEmpty(t, cluster.Endpoints())
}
