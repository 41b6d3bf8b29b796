package mixed

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// change is what became of a reservation, as the API server tells it, in its order.
type change struct {
	at      time.Time // when it was told; never before it happened
	deleted bool      // else created or changed
	name    string
	podRef  string
}

func (c change) String() string {
	verb := "written"
	if c.deleted {
		verb = "deleted"
	}
	return fmt.Sprintf("%s the reservation of %s is %s", clock(c.at), c.podRef, verb)
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// chronicle is all changes of the reservations of a namespace: the truth, which no
// fault of a proxy distorts.
type chronicle struct {
	mu      sync.Mutex
	changes []change
	broken  error // why it is not complete
	ended   chan struct{}
}

// chronicle follows the reservations until the context ends.
func (w *world) chronicle(ctx context.Context) *chronicle {
	w.Helper()
	api, _, err := newOldClient(w.cp.Kubeconfig(w.TB, testenv.Options{}), "")
	if err != nil {
		w.Fatal(err)
	}
	var list struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := w.cp.Client().Get(ctx, w.path(reservations), &list); err != nil {
		w.Fatal(err)
	}
	url := api.server + w.path(reservations) + "?watch=1&resourceVersion=" + list.Metadata.ResourceVersion
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		w.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+api.token)
	response, err := api.http.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	c := &chronicle{ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer response.Body.Close()
		c.follow(ctx, json.NewDecoder(response.Body))
	}()
	return c
}

func (c *chronicle) follow(ctx context.Context, events *json.Decoder) {
	for {
		var event struct {
			Type   string
			Object Object
		}
		err := events.Decode(&event)
		if err == nil && event.Type == "ERROR" {
			err = fmt.Errorf("%v", event.Object)
		}
		c.mu.Lock()
		if err != nil {
			if ctx.Err() == nil {
				c.broken = err
			}
			c.mu.Unlock()
			return
		}
		c.changes = append(c.changes, change{
			at: time.Now(), deleted: event.Type == "DELETED",
			name: event.Object.Name(), podRef: event.Object.String("spec", "podref"),
		})
		c.mu.Unlock()
	}
}

// of answers the changes of one reservation, in order.
func (c *chronicle) of(name string) []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []change
	for _, each := range c.changes {
		if each.name == name {
			found = append(found, each)
		}
	}
	return found
}
