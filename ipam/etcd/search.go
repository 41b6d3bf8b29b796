package etcd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// maxOps is what etcd takes in one transaction (--max-txn-ops).
const maxOps = 128

// Search reads a pool of one block whole. In a larger one it finds the records of
// owners by the index, and free addresses by the notes of blocks. No request covers
// more keys than it answers by much: etcd walks over all keys between the two ends of
// a range, whatever its limit.
func (s *Store) Search(ctx context.Context, q ipam.Search) (*ipam.Pool, error) {
	if blockOf(q.Pool.Range.Masked().Addr()) == blockOf(netipx.PrefixLastIP(q.Pool.Range)) {
		return s.Read(ctx, q.Pool)
	}
	pool, err := s.search(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", q.Pool, err)
	}
	return pool, nil
}

func (s *Store) search(ctx context.Context, q ipam.Search) (*ipam.Pool, error) {
	reads := []rangeRequest{below(blocksKey(q.Pool))}
	for _, key := range ownersKeys(q) {
		index := below(key)
		index.KeysOnly = true
		reads = append(reads, index)
	}
	found, err := s.readAll(ctx, reads)
	if err != nil {
		return nil, err
	}
	w := &walk{store: s, pool: emptyPool(q.Pool), notes: notesOf(q.Pool, found[0])}
	if err := s.takeRecords(ctx, w.pool, q.Addresses, found[1:]); err != nil {
		return nil, err
	}
	return w.pool, w.all(ctx, q)
}

// readAll reads ranges, as few times as etcd allows.
func (s *Store) readAll(ctx context.Context, reads []rangeRequest) ([]rangeAnswer, error) {
	var found []rangeAnswer
	for part := range slices.Chunk(reads, maxOps) {
		var t transaction
		for _, r := range part {
			t.Then = append(t.Then, readOp(r))
		}
		var out outcome
		if err := s.client.call(ctx, "/v3/kv/txn", t, &out); err != nil {
			return nil, err
		}
		found = append(found, out.ranges()...)
	}
	if len(found) != len(reads) {
		return nil, fmt.Errorf("%w: etcd answered %d reads of %d", ipam.ErrCorrupt, len(found), len(reads))
	}
	return found, nil
}

// ownersKeys is where in the index the owners' records are, each place once.
func ownersKeys(q ipam.Search) []string {
	var keys []string
	for _, o := range q.Owners {
		keys = append(keys, ownerKeys(q.Pool, o.ContainerID, o.PodRef)...)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// takeRecords reads the records of addresses, and those that the index names.
func (s *Store) takeRecords(ctx context.Context, pool *ipam.Pool, addresses []netip.Addr, index []rangeAnswer) error {
	prefix := poolKey(pool.ID)
	var names []string
	for _, a := range addresses {
		names = append(names, digits(a))
	}
	for _, a := range index {
		for _, kv := range a.Pairs {
			key := string(kv.Key)
			names = append(names, key[strings.LastIndexByte(key, '/')+1:])
		}
	}
	slices.Sort(names)
	var reads []rangeRequest
	for _, name := range slices.Compact(names) {
		reads = append(reads, one(prefix+name))
	}
	found, err := s.readAll(ctx, reads)
	if err != nil {
		return err
	}
	for _, a := range found {
		for _, kv := range a.Pairs {
			add(pool, string(kv.Key)[len(prefix):], decode(kv))
		}
	}
	return nil
}
