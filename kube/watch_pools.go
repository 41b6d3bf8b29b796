package kube

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// poolHead is a pool object without its content.
type poolHead struct {
	Metadata objectMeta `json:"metadata"`
}

func (o *poolHead) ident() identity { return o.Metadata.ident() }

// poolContent is a pool as it was read last.
type poolContent struct {
	stored *storedPool
	at     time.Time
}

// manyPools is how many pools are read one by one at the most, unless they are a small
// part of all.
const manyPools = 20

// reread brings the contents up to date with the heads, but for those that were read
// less than age ago: when that time is over there is a signal, since nothing else might
// tell that the records left out now are worth a look. It answers the namespaces in
// which that failed.
func (w *Watcher) reread(ctx context.Context, age time.Duration) (failed map[string]bool, err error) {
	heads := map[objectKey]string{}
	w.heads.each(func(key objectKey, version string) { heads[key] = version })
	for key := range w.contents {
		if _, ok := heads[key]; !ok {
			delete(w.contents, key)
		}
	}
	stale, next := w.stale(heads, age)
	if next > 0 {
		time.AfterFunc(next, w.signal)
	}
	failed = map[string]bool{}
	if len(stale) > manyPools && len(stale) > len(heads)/4 {
		if err := w.readAll(ctx); err != nil {
			for key := range heads {
				failed[key.namespace] = true
			}
			return failed, err
		}
		return failed, nil
	}
	for _, key := range stale {
		// One at a time: a pool may take megabytes to decode.
		if oneErr := w.readOne(ctx, key); oneErr != nil {
			failed[key.namespace] = true
			err = errors.Join(err, oneErr)
		}
	}
	return failed, err
}

// stale lists the pools whose contents are to be read again. Others that have changed
// too, but were read less than age ago, are worth it after next; 0 if there are none.
func (w *Watcher) stale(heads map[objectKey]string, age time.Duration) (stale []objectKey, next time.Duration) {
	for key, version := range heads {
		have := w.contents[key]
		if have != nil && have.stored.version == version {
			continue
		}
		if have != nil {
			if wait := age - w.now().Sub(have.at); wait > 0 {
				next = max(next, wait) // one signal for all of them
				continue
			}
		}
		stale = append(stale, key)
	}
	return stale, next
}

func (w *Watcher) readOne(ctx context.Context, key objectKey) error {
	var object ipPool
	in := &Store{client: w.client.In(key.namespace)}
	err := w.client.read(ctx, request{method: http.MethodGet, path: in.path(poolResource, key.name)}, &object)
	if isMissing(err, key.name) {
		delete(w.contents, key)
		return nil
	}
	if err != nil {
		return w.client.explain("read pool "+key.namespace+"/"+key.name, err)
	}
	w.store(key, &object)
	return nil
}

func (w *Watcher) store(key objectKey, object *ipPool) {
	stored, _ := keepPool(object)
	w.contents[key] = &poolContent{stored: stored, at: w.now()}
}

// readAll lists all pools: cheaper than to read so many one by one.
func (w *Watcher) readAll(ctx context.Context) error {
	return listAgain(ctx, w.client, w.collections.pools, poolReader{w, map[objectKey]bool{}})
}

// poolReader puts listed pools into a watcher's contents.
type poolReader struct {
	watcher *Watcher
	found   map[objectKey]bool
}

func (r poolReader) begin() { clear(r.found) }

func (r poolReader) put(object *ipPool) {
	key := objectKey{object.Metadata.Namespace, object.Metadata.Name}
	r.found[key] = true
	r.watcher.store(key, object)
}

// remove and missing are never called: it is only listed, and what is listed must
// be there.
func (r poolReader) remove(*ipPool) {}
func (r poolReader) missing()       {}

func (r poolReader) end() {
	for key := range r.watcher.contents {
		if !r.found[key] {
			delete(r.watcher.contents, key)
		}
	}
}
