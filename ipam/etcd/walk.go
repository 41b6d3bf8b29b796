package etcd

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const (
	// stretch is how many blocks are read at once in the search for free addresses.
	// Each further stretch is twice as long, up to longest.
	stretch, longest = 1, 32

	// far is after how many stretches a search ends that has found something.
	far = 3

	// crowded is how many held addresses make it worth to note what a block has
	// free; mostNotes are written by one search.
	crowded, mostNotes = 64, 64
)

// noted is a note, and the revision of the write that made it.
type noted struct {
	note
	revision int64
}

func notesOf(id ipam.PoolID, found rangeAnswer) map[netip.Addr]noted {
	notes := map[netip.Addr]noted{}
	prefix := blocksKey(id)
	for _, kv := range found.Pairs {
		block, ok := parseDigits(string(kv.Key)[len(prefix):])
		var n note
		if err := json.Unmarshal(kv.Value, &n); ok {
			n.Known = n.Known && err == nil
			notes[block] = noted{n, kv.Revision}
		}
	}
	return notes
}

// walk looks for free addresses in a pool that is too large to be read.
type walk struct {
	store *Store
	pool  *ipam.Pool
	notes map[netip.Addr]noted

	full netipx.IPSetBuilder
	news map[netip.Addr]noted // to be written
}

func (w *walk) all(ctx context.Context, q ipam.Search) error {
	w.news = map[netip.Addr]noted{}
	exhausted := false
	for _, r := range q.Ranges {
		found, err := w.through(ctx, r, q.Free)
		if err != nil {
			return err
		}
		exhausted = exhausted || found == 0
	}
	set, err := w.full.IPSet()
	if err != nil {
		return err
	}
	w.pool.Full = set.Ranges()
	w.write(ctx)
	if exhausted {
		return w.count(ctx)
	}
	return nil
}

// through walks through a range from below, until enough free addresses are known.
func (w *walk) through(ctx context.Context, r ipam.Range, enough int) (found int, err error) {
	for stretches := 0; ; {
		next := ipam.Free(r, nil, 1)
		if len(next) == 0 {
			return found, nil
		}
		block := blockOf(next[0])
		known := lastOf(block)
		if n := w.notes[block]; n.Known && !slices.ContainsFunc(n.addresses(block), r.Eligible) {
			w.skip(block, n.note)
		} else {
			if found >= enough || found > 0 && stretches == far {
				return found, nil
			}
			for range min(stretch<<stretches, longest) - 1 {
				if known.Less(r.Last) {
					known = lastOf(known.Next())
				}
			}
			if err := w.read(ctx, block, known, r); err != nil {
				return 0, err
			}
			found += len(ipam.Free(r.UpTo(known), w.held, enough-found))
			stretches++
		}
		if !known.Less(r.Last) {
			return found, nil
		}
		r = r.From(known.Next())
	}
}

func (w *walk) held(a netip.Addr) bool {
	_, held := w.pool.Records[a]
	return held
}

// skip notes for the caller that all of a block is held, but what is free.
func (w *walk) skip(block netip.Addr, n note) {
	from := block
	for _, a := range append(n.addresses(block), lastOf(block).Next()) {
		if span := netipx.IPRangeFrom(from, a.Prev()); span.IsValid() {
			w.full.AddRange(span)
		}
		from = a.Next()
	}
}

// read takes over which addresses are held from the begin of a block to the end of
// one.
func (w *walk) read(ctx context.Context, block, last netip.Addr, r ipam.Range) error {
	prefix := poolKey(w.pool.ID)
	var found rangeAnswer
	request := rangeRequest{Key: text(prefix + digits(block)), End: text(prefix + digits(last) + "\x00"), KeysOnly: true}
	if err := w.store.client.call(ctx, "/v3/kv/range", request, &found); err != nil {
		return err
	}
	blocks := map[netip.Addr]bool{}
	for _, kv := range found.Pairs {
		if a, ok := parseDigits(string(kv.Key)[len(prefix):]); ok {
			blocks[blockOf(a)] = true
			if !w.held(a) {
				w.pool.Records[a] = ipam.Record{}
			}
		}
	}
	w.pool.Exists = w.pool.Exists || len(blocks) > 0
	for b := range blocks {
		w.look(r, b)
	}
	return nil
}

// look makes a note of a block that has been read whole, if it is crowded and has
// nothing for the range.
func (w *walk) look(r ipam.Range, block netip.Addr) {
	n := note{Known: true}
	for last := range 256 {
		a := note{Free: []int{last}}.addresses(block)[0]
		if w.held(a) {
			continue
		}
		if r.Eligible(a) {
			return
		}
		n.Free = append(n.Free, last)
	}
	if len(n.Free) <= 256-crowded && len(w.news) < mostNotes {
		w.news[block] = noted{n, w.notes[block].revision}
	}
}

// write writes the notes, unless an address of the block was released since they were
// read. A note that is missing costs time and nothing else.
func (w *walk) write(ctx context.Context) {
	for block, n := range w.news {
		key := blockKey(w.pool.ID, block)
		var out outcome
		err := w.store.client.call(ctx, "/v3/kv/txn", transaction{
			If: []condition{unchanged(key, n.revision)}, Then: []op{putOp(key, encodeNote(n.note))},
		}, &out)
		if err != nil {
			return
		}
	}
}

// count says how many records there are, for the message of a range without a free
// address.
func (w *walk) count(ctx context.Context) error {
	r := below(poolKey(w.pool.ID))
	r.Count = true
	var found rangeAnswer
	if err := w.store.client.call(ctx, "/v3/kv/range", r, &found); err != nil {
		return err
	}
	w.pool.More = int(found.Count) - len(w.pool.Records)
	return nil
}
