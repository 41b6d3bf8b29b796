package kube

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestDefinitionsThatChangeConcern(t *testing.T) {
	concerned := 0
	c := newCluster([]byte("{}"), func() { concerned++ })
	put := func(version, config string) {
		var o definitionObject
		o.Metadata.Namespace, o.Metadata.Name, o.Metadata.Version = "n", "a", version
		o.Spec.Config = anyText(config)
		c.definitions.put(&o)
	}
	c.definitions.begin()
	put("1", someConfig)
	c.definitions.end()
	if on, known := c.nets().Protection(somePoolID); !on || !known || concerned != 0 {
		t.Errorf("after the first list: %v, %v, %d signals", on, known, concerned)
	}
	put("2", someConfig)
	if concerned != 0 {
		t.Error("a new version of the same configuration is signalled")
	}
	put("3", `{}`)
	if concerned != 1 || c.nets().Named(somePoolID) {
		t.Errorf("after a change: %d signals, named %v", concerned, c.nets().Named(somePoolID))
	}
}

// A version from before etcd was restored may be one that the server never reaches: it
// refuses the watch for ever, and only a list helps.
func TestAWatchThatIsRefusedAgainAndAgainStartsAnew(t *testing.T) {
	var lists atomic.Int64
	again := make(chan struct{})
	client := clientOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
		if lists.Add(1) == 2 {
			close(again)
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"5"},"items":[]}`)
	})
	w := NewWatcher(client, nil)
	go w.followers[0](t.Context())
	select {
	case <-again:
	case <-time.After(patience):
		t.Fatal("it is not listed again")
	}
}

func TestHealth(t *testing.T) {
	h := newHealth("things")
	down := fmt.Errorf("%w: down", ipam.ErrDenied)
	if err := h.synced(); !errors.Is(err, ipam.ErrUnavailable) {
		t.Errorf("before anything: %v", err)
	}
	h.failed(down)
	if err := h.synced(); !errors.Is(err, down) {
		t.Errorf("before anything, with a reason: %v", err)
	}
	h.listed()
	h.listed() // as often as it is listed
	if h.synced() != nil || h.fresh() != nil {
		t.Errorf("once listed: %v, %v", h.synced(), h.fresh())
	}
	h.failed(down)
	if h.fresh() != nil {
		t.Error("a watch that has just gone down is out of date at once")
	}
	h.since = h.since.Add(-staleAfter)
	h.failed(down) // the time counts from the first
	if !errors.Is(h.fresh(), down) || h.synced() != nil {
		t.Errorf("down for long: %v, %v", h.fresh(), h.synced())
	}
	h.watching()
	if h.fresh() != nil {
		t.Error("up again and still out of date")
	}
}
