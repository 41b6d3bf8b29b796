package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// small is how many records are read whole, with one request.
	small = 128

	// maxOps is what etcd takes in one transaction (--max-txn-ops).
	maxOps = 128
)

// Search reads a small pool whole. In a large one it finds the records of owners by
// the index, and free addresses by the notes of blocks.
func (s *Store) Search(ctx context.Context, q ipam.Search) (*ipam.Pool, error) {
	pool, err := s.search(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("pool %s: %w", q.Pool, err)
	}
	return pool, nil
}

func (s *Store) search(ctx context.Context, q ipam.Search) (*ipam.Pool, error) {
	prefix := poolKey(q.Pool)
	whole := below(prefix)
	whole.Limit = small + 1
	reads := []rangeRequest{whole, below(blocksKey(q.Pool))}
	for _, a := range q.Addresses {
		reads = append(reads, one(recordKey(q.Pool, a)))
	}
	for _, key := range ownersKeys(q) {
		index := below(key)
		index.KeysOnly = true
		reads = append(reads, index)
	}
	found, err := s.readAll(ctx, reads)
	if err != nil {
		return nil, err
	}
	pool := emptyPool(q.Pool)
	take := func(a rangeAnswer) {
		for _, kv := range a.Pairs {
			add(pool, string(kv.Key)[len(prefix):], decode(kv))
		}
	}
	take(found[0])
	if !found[0].More {
		return pool, nil
	}
	for _, a := range found[2 : 2+len(q.Addresses)] {
		take(a)
	}
	if err := s.takeIndexed(ctx, pool, found[2+len(q.Addresses):]); err != nil {
		return nil, err
	}
	w := &walk{store: s, pool: pool, notes: notesOf(q.Pool, found[1])}
	return pool, w.all(ctx, q)
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

// takeIndexed reads the records that the index names.
func (s *Store) takeIndexed(ctx context.Context, pool *ipam.Pool, index []rangeAnswer) error {
	prefix := poolKey(pool.ID)
	var reads []rangeRequest
	for _, a := range index {
		for _, kv := range a.Pairs {
			key := string(kv.Key)
			reads = append(reads, one(prefix+key[strings.LastIndexByte(key, '/')+1:]))
		}
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
