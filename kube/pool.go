package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// outcome is what became of one pool entry.
type outcome struct {
	patched bool        // by our own patch, as far as can be told
	certain bool        // our patch was answered
	gone    bool        // there is no entry any more
	others  bool        // the entry is somebody else's now
	entry   ipam.Record // that somebody's
}

// operation is one step of a JSON patch (RFC 6902). A test of the value null
// holds for a missing field too.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// nullTest is a test for a field that must be missing: the value has to be
// written out as null.
type nullTest struct {
	Op    string  `json:"op"`
	Path  string  `json:"path"`
	Value *string `json:"value"`
}

// commitPools writes the entries of all changes that have no error yet.
func (s *Store) commitPools(ctx context.Context, changes []ipam.Change, errs []error, outcomes []outcome) {
	var order []ipam.PoolID
	byPool := map[ipam.PoolID][]int{}
	for i, c := range changes {
		if errs[i] != nil || c.Seen != nil {
			continue
		}
		if byPool[c.Pool] == nil {
			order = append(order, c.Pool)
		}
		byPool[c.Pool] = append(byPool[c.Pool], i)
	}
	parallel(len(order), func(i int) {
		b := &batch{store: s, id: order[i], changes: changes, errs: errs, outcomes: outcomes, seen: map[int]bool{}}
		b.commit(ctx, byPool[order[i]])
	})
}

// batch is the changes of one pool on their way into it. Indices refer to
// changes, errs and outcomes alike; no two batches share one.
type batch struct {
	store    *Store
	id       ipam.PoolID
	changes  []ipam.Change
	errs     []error
	outcomes []outcome
	seen     map[int]bool // releases whose record was there when we looked
}

// commit writes until each pending change is settled: done, refused, or out of
// time. After an answer that leaves doubt the pool is read again, and only what
// is still to do is written again.
func (b *batch) commit(ctx context.Context, pending []int) {
	var pause backoff
	name := PoolName(b.id)
	for refused := 0; len(pending) > 0; {
		err := b.write(ctx, pending)
		if err == nil {
			for _, i := range pending {
				b.outcomes[i].patched, b.outcomes[i].certain = true, true
			}
			return
		}
		if !worthAnotherTry(err, name) {
			b.refuse(ctx, pending, fmt.Errorf("write pool %s: %w", name, err))
			return
		}
		if isBusy(err) {
			// Other writers were faster, and nothing has been written: our
			// tests still say what has to hold.
			if b.store.observer != nil {
				b.store.observer.Crowded(b.id)
			}
			if waitErr := pause.wait(ctx, err); waitErr != nil {
				b.fail(pending, fmt.Errorf("write pool %s: %w", name, waitErr))
				return
			}
			defer b.store.Turn(ctx, b.id, nil)()
			continue
		}
		left, readErr := b.settle(ctx, pending)
		if readErr != nil {
			b.fail(pending, readErr)
			return
		}
		if len(left) == len(pending) {
			// All preconditions hold. A server that refuses a patch twice then
			// has something else against it.
			if isStatus(err, http.StatusUnprocessableEntity) {
				refused++
			}
			if refused > 1 {
				b.refuse(ctx, left, fmt.Errorf("write pool %s: %w", name, err))
				return
			}
			if waitErr := pause.wait(ctx, err); waitErr != nil {
				b.fail(left, fmt.Errorf("write pool %s: %w", name, waitErr))
				return
			}
		}
		pending = left
	}
}

// isBusy reports that an object was written by others while the server applied our
// patch, more often than it tries again by itself.
func isBusy(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.code == http.StatusConflict && e.reason == "Conflict"
}

// worthAnotherTry reports whether a look at the pool may show what to do: the
// answer is lost, a test failed, or the pool is gone or has just been made.
func worthAnotherTry(err error, pool string) bool {
	return transient(err) || isMissing(err, pool) ||
		isStatus(err, http.StatusUnprocessableEntity) || isStatus(err, http.StatusConflict)
}

// refuse deals with a write that the server does not accept: each change is
// tried alone, so that only the one at fault fails.
func (b *batch) refuse(ctx context.Context, pending []int, err error) {
	if len(pending) == 1 {
		b.fail(pending, err)
		return
	}
	for _, i := range pending {
		b.commit(ctx, []int{i})
	}
}

func (b *batch) fail(pending []int, err error) {
	for _, i := range pending {
		b.errs[i] = b.store.client.explain(fmt.Sprintf("record %s", b.changes[i].Address), err)
	}
}

// settle reads the pool and sorts out which changes have been carried out and
// which are refused by what is there now; it returns the others.
func (b *batch) settle(ctx context.Context, pending []int) ([]int, error) {
	pool, err := b.store.Read(ctx, b.id)
	if err != nil {
		return nil, err
	}
	var left []int
	for _, i := range pending {
		c := b.changes[i]
		current, held := pool.Records[c.Address]
		switch v := judge(c, current, held); {
		case v == changePending && c.After != nil && pool.Closed:
			b.errs[i] = &ipam.ClosedError{Pool: b.id}
		case v == changePending:
			if c.Before != nil {
				b.changes[i].Before = &current // with the token that is really there
			}
			b.seen[i] = true
			left = append(left, i)
		case v == changeLost:
			b.errs[i] = &ipam.ConflictError{Address: c.Address, Holder: current}
			b.outcomes[i] = outcome{gone: !held, others: held, entry: current}
		default:
			// One that was there and is not any more, our write has removed,
			// though its answer was lost.
			b.outcomes[i] = outcome{patched: !held && b.seen[i], gone: !held, others: held && c.After == nil, entry: current}
		}
	}
	return left, nil
}

type verdict int

const (
	changePending verdict = iota // its precondition holds
	changeDone                   // it has been carried out
	changeLost                   // its precondition does not hold
)

// judge compares a change with the entry that is there.
func judge(c ipam.Change, current ipam.Record, held bool) verdict {
	if c.After == nil {
		if held && c.Frees(current) {
			return changePending
		}
		return changeDone
	}
	switch {
	case held && current.Same(*c.After) && (c.Before == nil || !c.Before.Same(*c.After) || current.Gen == c.After.Gen):
		return changeDone
	case c.Before == nil && !held, c.Before != nil && held && current.Same(*c.Before):
		return changePending
	default:
		return changeLost
	}
}

// write makes one request for all pending changes.
func (b *batch) write(ctx context.Context, pending []int) error {
	seen := b.store.recall(b.id)
	if !seen.exists {
		return b.create(ctx, pending)
	}
	ops := []any{operation{Op: "test", Path: "/spec/range", Value: seen.spec}}
	if b.id.Node != "" && b.takes(pending) {
		ops = append(ops, openTest(seen))
	}
	for _, i := range pending {
		more, err := entryPatch(b.changes[i], seen)
		if err != nil {
			return err
		}
		ops = append(ops, more...)
	}
	var after struct {
		Metadata objectMeta `json:"metadata"`
	}
	began := time.Now()
	err := b.store.client.do(ctx, request{
		method: http.MethodPatch, path: b.store.path(poolResource, PoolName(b.id)),
		contentType: jsonPatch, body: ops, slim: true,
	}, &after)
	if err == nil && b.store.observer != nil {
		w := ipam.Write{Took: time.Since(began), Generation: after.Metadata.Generation}
		if seen.generation != 0 {
			w.Before, w.Since = seen.generation, time.Since(seen.at)
		}
		b.store.observer.Wrote(b.id, w)
	}
	return err
}

// takes reports whether any of the changes takes or keeps an address.
func (b *batch) takes(pending []int) bool {
	return slices.ContainsFunc(pending, func(i int) bool { return b.changes[i].After != nil })
}

// openTest tests that a node's pool is not closed. A test for a missing field fails
// where its parent is missing too, so it depends on what is there: an object that was
// read without annotations must still have none. If that is not so the pool is read
// again, and with that tells what to test.
func openTest(seen seenPool) nullTest {
	if !seen.annotated {
		return nullTest{Op: "test", Path: "/metadata/annotations"}
	}
	return nullTest{Op: "test", Path: "/metadata/annotations/" + strings.ReplaceAll(closedAnnotation, "/", "~1")}
}

// create makes the pool object with the entries taken; there is nothing to
// release in it.
func (b *batch) create(ctx context.Context, pending []int) error {
	object := ipPool{
		APIVersion: apiVersion, Kind: "IPPool", Metadata: objectMeta{Name: PoolName(b.id), Namespace: b.store.client.namespace},
		Spec: ipPoolSpec{Range: b.id.Range.String(), Allocations: map[string]allocation{}},
	}
	if b.id.Node != "" {
		object.Metadata.Annotations = map[string]string{nodeAnnotation: b.id.Node}
	}
	for _, i := range pending {
		c := b.changes[i]
		if c.Before != nil {
			return &statusError{code: http.StatusNotFound, name: object.Metadata.Name, message: "pool is gone"}
		}
		offset, ok := ipam.Offset(b.id.Range.Addr(), c.Address)
		if !ok {
			return errBelowBase
		}
		object.Spec.Allocations[offset.String()] = newAllocation(*c.After, c.Overlap)
	}
	err := b.store.client.do(ctx, request{method: http.MethodPost, path: b.store.path(poolResource, ""), body: object, slim: true}, nil)
	if err == nil {
		b.store.remember(b.id, seenPool{
			exists: true, spec: object.Spec.Range, base: b.id.Range.Addr(), annotated: object.Metadata.Annotations != nil,
		})
	}
	return err
}

// errBelowBase is about an address that has no key in a pool whose spec.range
// begins behind it.
var errBelowBase = fmt.Errorf("%w: the address lies before the first one that the pool object can hold (its spec.range)", ipam.ErrCorrupt)

// entryPatch is the steps that change one entry. Only single fields are tested,
// so that fields an older resource definition prunes do no harm.
func entryPatch(c ipam.Change, seen seenPool) ([]any, error) {
	offset, ok := ipam.Offset(seen.base, c.Address)
	if !ok {
		return nil, errBelowBase
	}
	path := "/spec/allocations/" + offset.String()
	var ops []any
	if c.Before == nil {
		ops = append(ops, nullTest{Op: "test", Path: path})
	} else {
		ops = append(ops, operation{Op: "test", Path: path + "/id", Value: c.Before.ContainerID})
		if c.Before.IfName != "" {
			ops = append(ops, operation{Op: "test", Path: path + "/ifname", Value: c.Before.IfName})
		}
		if c.Before.Gen != "" {
			ops = append(ops, operation{Op: "test", Path: path + "/gen", Value: c.Before.Gen})
		}
	}
	if c.After == nil {
		return append(ops, operation{Op: "remove", Path: path}), nil
	}
	return append(ops, operation{Op: "add", Path: path, Value: newAllocation(*c.After, c.Overlap)}), nil
}
