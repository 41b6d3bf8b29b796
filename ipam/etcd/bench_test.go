package etcd

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
	"github.com/whereabouts-cni/whereabouts/ipam"
)

// BenchmarkAdd compares an ADD in an empty pool with one where a hundred thousand
// addresses are held, inside a process and as a whole process, interleaved:
//
//	go test ./ipam/etcd -run '^$' -bench Add -benchtime 100x
func BenchmarkAdd(b *testing.B) {
	endpoint := testenv.StartEtcd(b, 1).Endpoints()
	binary := filepath.Join(b.TempDir(), "whereabouts")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "../..").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	sizes := []int{0, 1000, 100_000}
	var pools []*benchPool
	for _, n := range sizes {
		pools = append(pools, newBenchPool(b, endpoint, n))
	}
	for name, add := range map[string]func(p *benchPool){
		"call":          func(p *benchPool) { p.add(b) },
		"whole process": func(p *benchPool) { p.run(b, binary) },
	} {
		b.Run(name, func(b *testing.B) {
			times := make([][]time.Duration, len(pools))
			for b.Loop() {
				for i, p := range pools {
					began := time.Now()
					add(p)
					times[i] = append(times[i], time.Since(began))
				}
			}
			for i, n := range sizes {
				b.ReportMetric(median(times[i]).Seconds()*1000, fmt.Sprintf("ms-with-%d", n))
			}
		})
	}
}

// BenchmarkTakeAndRelease is what one address costs in transactions alone.
func BenchmarkTakeAndRelease(b *testing.B) {
	s := open(b, testenv.StartEtcd(b, 1).Endpoints())
	id := ipam.PoolID{Range: netip.MustParsePrefix("10.0.0.0/24")}
	r := ipam.NewRecord(ipam.Owner{ContainerID: "c1", IfName: "net1", PodRef: "default/a"}, time.Now())
	take := ipam.Change{Pool: id, Address: netip.MustParseAddr("10.0.0.1"), After: &r, Overlap: true}
	release := take
	release.Before, release.After = &r, nil
	for b.Loop() {
		for _, c := range []ipam.Change{take, release} {
			if err := s.Commit(b.Context(), []ipam.Change{c})[0]; err != nil {
				b.Fatal(err)
			}
		}
	}
}

// benchPool is a pool with many records, and what adds more.
type benchPool struct {
	endpoint, network, dir string
	allocator              *ipam.Allocator
	config                 *ipam.Config
	count                  int
}

func newBenchPool(b *testing.B, endpoint string, n int) *benchPool {
	s := open(b, endpoint)
	p := &benchPool{endpoint: endpoint, network: fmt.Sprint("held-", n), dir: b.TempDir()}
	r := mustRange(b, ipam.RangeSpec{Range: "10.0.0.0/8"})
	id := ipam.PoolID{Network: p.network, Range: netip.MustParsePrefix("10.0.0.0/8")}
	fill(b, s, id, ipam.Free(r, nil, n))
	for range 1 + n/256/mostNotes {
		next(b, s, id, r) // writes the notes that readers would have written meanwhile
	}
	p.config = &ipam.Config{NetworkName: p.network, Ranges: []ipam.Range{r}, Overlap: true}
	p.allocator = &ipam.Allocator{
		Store: s, Journal: ipam.NoJournal{}, Now: time.Now, Rand: rand.IntN, Log: slog.New(slog.DiscardHandler),
	}
	return p
}

func (p *benchPool) add(b *testing.B) {
	p.count++
	owner := ipam.Owner{ContainerID: fmt.Sprint("c", p.count), IfName: "net1", PodRef: fmt.Sprint("default/p", p.count)}
	if _, err := p.allocator.Add(b.Context(), p.config, owner); err != nil {
		b.Fatal(err)
	}
}

func (p *benchPool) run(b *testing.B, binary string) {
	p.count++
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_PATH=/opt/cni/bin", "CNI_IFNAME=net1", fmt.Sprint("CNI_CONTAINERID=c", p.count),
		"CNI_NETNS=/var/run/netns/x", "CNI_NETNS_OVERRIDE=1", fmt.Sprint("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p", p.count),
		"NODENAME=bench", "WHEREABOUTS_RUN_DIR="+p.dir, "WHEREABOUTS_STATE_DIR="+p.dir)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "bench", "type": "bridge", "ipam": {"type": "whereabouts",
		"datastore": "etcd", "etcd_host": %q, "range": "10.0.0.0/8", "network_name": %q}}`, p.endpoint, p.network))
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

func median(times []time.Duration) time.Duration {
	sorted := append([]time.Duration(nil), times...)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
