package history

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// TestExactlyFull lets many pods on many nodes come at once to a pool that has as
// many addresses as there are pods, or twice as many, and go again. Like TestHistory
// it has a long form, and is smallest with -short.
func TestExactlyFull(t *testing.T) {
	pods, atOnce := 60, 10
	if os.Getenv(timeVariable) != "" {
		pods, atOnce = 1000, 50
	}
	store := newKubeStore(t, nil).(*kubeStore)
	t.Run("exactly full", func(t *testing.T) { newCrowd(t, store, pods, pods, atOnce).comeAndGo(t) })
	store.namespace = store.cp.Namespace(t)
	t.Run("half full", func(t *testing.T) { newCrowd(t, store, pods, 2*pods, atOnce).comeAndGo(t) })
}

// crowd is many pods that come to one pool at once, some on each node.
type crowd struct {
	store  *kubeStore
	net    *network
	ranks  map[netip.Addr]int // of the addresses that can be handed out, from 1
	pods   []*pod
	nodes  []*node
	atOnce int
}

func newCrowd(t *testing.T, store *kubeStore, pods, addresses, atOnce int) *crowd {
	c := &crowd{store: store, atOnce: atOnce, ranks: map[netip.Addr]int{}}
	for i := range atOnce {
		c.nodes = append(c.nodes, newNode(t, store, i))
	}
	pool := netip.MustParsePrefix("10.80.0.0/16")
	last := pool.Addr()
	for len(c.ranks) < addresses {
		last = last.Next()
		if last.As4()[3] != 0 { // those are never handed out
			c.ranks[last] = len(c.ranks) + 1
		}
	}
	c.net = &network{name: "net-a", spans: []span{{pool, pool.Addr().Next(), last}}}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		c.pods = append(c.pods, &pod{namespace: "default", name: name, uid: name, node: c.nodes[i%atOnce]})
	}
	return c
}

// comeAndGo has all pods come and go, and looks that none fails, that no two get the
// same address, and that nothing stays behind.
func (c *crowd) comeAndGo(t *testing.T) {
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() { c.look(t, ctx) })
	given := c.each(t, "ADD")
	cancel()
	looking.Wait()
	t.Logf("%d ADDs, %d at once: %.0f/s", len(c.pods), c.atOnce, float64(len(c.pods))/time.Since(began).Seconds())

	slices.SortFunc(given, netip.Addr.Compare)
	if distinct := len(slices.Compact(slices.Clone(given))); distinct != len(c.pods) {
		t.Errorf("%d pods got %d addresses: %v", len(c.pods), distinct, given)
	}
	if used, _ := c.used(t.Context(), t); used != len(c.pods) {
		t.Errorf("%d addresses are recorded, want %d", used, len(c.pods))
	}
	began = time.Now()
	c.each(t, "DEL")
	t.Logf("%d DELs, %d at once: %.0f/s", len(c.pods), c.atOnce, float64(len(c.pods))/time.Since(began).Seconds())
	for _, n := range c.nodes { // a machine that is very busy may have put off some
		if left := n.replay(c.net); left > 0 {
			t.Errorf("%d releases are still queued on %s", left, n.name)
		}
	}
	if used, _ := c.used(t.Context(), t); used != 0 {
		t.Errorf("%d addresses are still recorded", used)
	}
	if left := c.store.cp.Must(t).List(c.store.path("overlappingrangeipreservations")); len(left) > 0 {
		t.Errorf("%d reservations are left, such as %v", len(left), left[0])
	}
}

// each calls the plugin once for each pod, and answers the addresses given.
func (c *crowd) each(t *testing.T, verb string) []netip.Addr {
	var mu sync.Mutex
	var given []netip.Addr
	var group sync.WaitGroup
	for worker := range c.atOnce {
		group.Go(func() {
			for i := worker; i < len(c.pods); i += c.atOnce {
				p := c.pods[i]
				started, err := p.node.start(call{verb: verb, network: c.net, pod: p, container: p.uid + "-c1", ifName: "net1"})
				if err != nil {
					t.Error(err)
					return
				}
				a := started.wait()
				if !a.ok() {
					t.Errorf("%s of %s: %s\n%s", verb, p.name, a, a.stderr)
				}
				mu.Lock()
				for _, ip := range a.ips {
					given = append(given, ip.Addr())
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return given
}

// look makes sure, while pods come, that the pool is filled from below: the highest
// address in use is never much above what it would be without a gap.
func (c *crowd) look(t *testing.T, ctx context.Context) {
	const gap = 50
	samples, widest := 0, 0
	for sleep(ctx, 300*time.Millisecond) {
		used, highest := c.used(ctx, t)
		samples++
		widest = max(widest, highest-used)
		if highest > used+gap {
			t.Errorf("with %d addresses in use the highest is number %d", used, highest)
			return
		}
	}
	t.Logf("looked %d times; the highest address was at most %d above a pool without gaps", samples, widest)
}

// used answers how many addresses are recorded, and the rank of the highest.
func (c *crowd) used(ctx context.Context, t *testing.T) (count, highest int) {
	pool := c.net.spans[0].pool
	var object Object
	err := c.store.cp.Client().Get(ctx, c.store.path("ippools")+"/"+kube.PoolName(ipam.PoolID{Range: pool}), &object)
	if err != nil {
		if testenv.StatusCode(err) != 404 && ctx.Err() == nil {
			t.Error(err)
		}
		return 0, 0
	}
	entries, _ := object.Field("spec", "allocations").(map[string]any)
	for key := range entries {
		offset, _ := ipam.ParseUint128(key)
		found, _ := ipam.AddOffset(pool.Addr(), offset)
		if c.ranks[found] == 0 {
			t.Errorf("%s is recorded, and is not to be handed out", found)
		}
		highest = max(highest, c.ranks[found])
	}
	return len(entries), highest
}
