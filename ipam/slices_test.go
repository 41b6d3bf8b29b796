package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
)

// slicedStore is a store with lists of slices, and with pools that can be closed.
type slicedStore struct {
	ipam.Store
	lists map[string][]ipam.NodeSlice // by ipam.SliceList.String
	err   error                       // of reading a list

	mu     sync.Mutex
	closed map[ipam.PoolID]bool
	unseen map[ipam.PoolID]bool // of those closed: reading does not tell yet
	reads  []string             // what was read, in no order
}

func newSlicedStore(store ipam.Store) *slicedStore {
	return &slicedStore{
		Store: store, lists: map[string][]ipam.NodeSlice{}, closed: map[ipam.PoolID]bool{}, unseen: map[ipam.PoolID]bool{},
	}
}

func (s *slicedStore) Slices(_ context.Context, list ipam.SliceList) ([]ipam.NodeSlice, error) {
	s.read(list.String())
	return s.lists[list.String()], s.err
}

func (s *slicedStore) read(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads = append(s.reads, what)
}

func (s *slicedStore) close(id ipam.PoolID, unseen bool) { s.closed[id], s.unseen[id] = true, unseen }

func (s *slicedStore) Read(ctx context.Context, id ipam.PoolID) (*ipam.Pool, error) {
	s.read(id.String())
	pool, err := s.Store.Read(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		pool.Closed = s.closed[id] && !s.unseen[id]
		delete(s.unseen, id)
	}
	return pool, err
}

func (s *slicedStore) Commit(ctx context.Context, changes []ipam.Change) []error {
	errs := make([]error, len(changes))
	for i, c := range changes {
		if c.After != nil && s.closed[c.Pool] {
			errs[i] = &ipam.ClosedError{Pool: c.Pool}
		} else {
			errs[i] = s.Store.Commit(ctx, []ipam.Change{c})[0]
		}
	}
	return errs
}

// sliced is an allocator over a local store, a list of slices of network n, and a
// configuration of it.
func sliced(t *testing.T, keys string, list ...ipam.NodeSlice) (*slicedStore, *ipam.Allocator, *ipam.Config) {
	t.Helper()
	file, err := local.Open(filepath.Join(t.TempDir(), "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	store := newSlicedStore(file)
	store.lists["n"] = list
	a := &ipam.Allocator{
		Store: store, Slices: store, Journal: ipam.NoJournal{}, Log: slog.New(slog.DiscardHandler),
		Now: time.Now, Rand: func(int) int { return 0 },
	}
	stdin := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "n", "ipam": {"kubernetes": {"kubeconfig": "/k"}, %s}}`, keys)
	cfg, err := ipam.ParseConfig(ipam.Sources{Stdin: []byte(stdin)})
	if err != nil || len(cfg.Invalid) > 0 {
		t.Fatal(err, cfg.Invalid)
	}
	return store, a, cfg
}

func nodeSlice(node, prefix string) ipam.NodeSlice {
	return ipam.NodeSlice{Node: node, Range: netip.MustParsePrefix(prefix)}
}

func container(number int, node string) ipam.Owner {
	return ipam.Owner{
		ContainerID: fmt.Sprint("c", number), IfName: "net1", PodRef: fmt.Sprint("d/p", number), Node: node, Network: "n",
	}
}

const twenty = `"range": "10.5.0.0/20", "node_slice_size": 24`

func TestABatchReadsTheListOnce(t *testing.T) {
	store, a, cfg := sliced(t, twenty, nodeSlice("w", "10.5.0.0/24"))
	var additions []*ipam.Addition
	for i := range 5 {
		additions = append(additions, &ipam.Addition{Config: cfg, Owner: container(i, "w")})
	}
	removal := ipam.NewRemoval(ipam.NoJournal{}, cfg, container(9, "w"), nil)
	a.Run(t.Context(), additions, []*ipam.Removal{removal})
	given := map[netip.Prefix]bool{}
	for _, add := range additions {
		if add.Err != nil {
			t.Fatal(add.Err)
		}
		given[add.Assigned[0].Address] = true
	}
	if len(given) != 5 || !given[netip.MustParsePrefix("10.5.0.5/20")] {
		t.Errorf("given are %v", given)
	}
	lists := slices.DeleteFunc(store.reads, func(what string) bool { return what != "n" })
	if len(lists) != 1 {
		t.Errorf("the list was read %d times", len(lists))
	}
}

func TestWhatSlicesNeed(t *testing.T) {
	for _, test := range []struct {
		says string
		err  error  // of reading the list
		node string // "" is not known
		bare bool   // the store has no slices
		want error
		del  error
	}{
		{says: "all is there", node: "w"},
		{says: "the list cannot be read", node: "w", err: fmt.Errorf("%w: away", ipam.ErrUnavailable), want: ipam.ErrUnavailable, del: ipam.ErrUnavailable},
		{says: "the list must not be read", node: "w", err: fmt.Errorf("%w: no rights", ipam.ErrDenied), want: ipam.ErrDenied, del: ipam.ErrDenied},
		{says: "another node", node: "x", want: ipam.ErrNoSlice},
		{says: "the node's name is not known", want: ipam.ErrInvalid},
		{says: "a store without slices", node: "w", bare: true, want: ipam.ErrInvalid},
	} {
		t.Run(test.says, func(t *testing.T) {
			store, a, cfg := sliced(t, twenty, nodeSlice("w", "10.5.0.0/24"))
			store.err, cfg.Node = test.err, test.node
			if test.bare {
				a.Slices = nil
			}
			_, err := a.Add(t.Context(), cfg, container(1, test.node))
			if !errors.Is(err, test.want) || test.want == nil && err != nil {
				t.Errorf("ADD answers %v, want %v", err, test.want)
			}
			if err := a.Serves(t.Context(), cfg); !errors.Is(err, test.want) {
				t.Errorf("STATUS answers %v, want %v", err, test.want)
			}
			if err := a.Release(t.Context(), cfg, container(1, test.node), nil); !errors.Is(err, test.del) {
				t.Errorf("DEL answers %v, want %v", err, test.del)
			}
		})
	}
}

// A network without any name has no list.
func TestSlicesNeedAName(t *testing.T) {
	_, a, cfg := sliced(t, twenty, nodeSlice("w", "10.5.0.0/24"))
	cfg.Name = ""
	if _, err := a.Add(t.Context(), cfg, container(1, "w")); !errors.Is(err, ipam.ErrInvalid) {
		t.Errorf("it answers %v", err)
	}
}

// A requested address that no node's slice has can only be kept by a reservation.
func TestRequestedAddressOutsideAllSlicesNeedsProtection(t *testing.T) {
	for _, test := range []struct {
		says, keys string
		pool       string // "" is refused
	}{
		{"protected", twenty, "10.5.0.0/20"},
		{"not protected", twenty + `, "enable_overlapping_ranges": false`, ""},
		{"not protected, but excluded", twenty + `, "enable_overlapping_ranges": false, "exclude": ["10.5.9.0/24"]`, "10.5.0.0/20"},
	} {
		t.Run(test.says, func(t *testing.T) {
			store, a, cfg := sliced(t, test.keys, nodeSlice("w", "10.5.0.0/24"))
			address := netip.MustParseAddr("10.5.9.7")
			cfg.Requested = []ipam.Request{{Addr: address, Bits: -1, Source: "IP"}}
			_, err := a.Add(t.Context(), cfg, container(1, "w"))
			if test.pool == "" {
				if !errors.Is(err, ipam.ErrInvalid) {
					t.Errorf("it answers %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			pool, err := store.Read(t.Context(), ipam.PoolID{Range: netip.MustParsePrefix(test.pool)})
			if err != nil || len(pool.Records) != 1 {
				t.Errorf("pool %s has %v, %v", test.pool, pool.Records, err)
			}
		})
	}
}

// A release that is queued on the node knows all that is needed to find the slices.
func TestQueuedReleaseLooksIntoSlices(t *testing.T) {
	store, a, cfg := sliced(t, twenty, nodeSlice("w", "10.5.0.0/24"))
	if _, err := a.Add(t.Context(), cfg, container(1, "w")); err != nil {
		t.Fatal(err)
	}
	store.err = fmt.Errorf("%w: away", ipam.ErrUnavailable)
	removal := ipam.NewRemoval(ipam.NoJournal{}, cfg, container(1, "w"), nil)
	a.Run(t.Context(), nil, []*ipam.Removal{removal})
	if !errors.Is(removal.Err, ipam.ErrUnavailable) {
		t.Fatalf("it answers %v", removal.Err)
	}
	store.err, removal.Err = nil, nil
	a.Run(t.Context(), nil, []*ipam.Removal{removal})
	pool, err := store.Read(t.Context(), ipam.PoolID{Node: "w", Range: netip.MustParsePrefix("10.5.0.0/24")})
	if removal.Err != nil || err != nil || len(pool.Records) > 0 {
		t.Errorf("it answers %v, left is %v, %v", removal.Err, pool.Records, err)
	}
}
