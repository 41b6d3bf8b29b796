package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Releases is the queue of releases that could not reach the datastore, one file
// for each interface of each container:
//
//	<state directory>/releases/<container id>@<interface>
//
// A file is a JSON document (see release) without secrets; it is replaced by rename
// and synced. What is in it is tested against the datastore like any other release:
// container id, interface and token have to match.
type Releases struct {
	directory string
	store     string
}

const (
	releaseFormat = 1

	// maxReleases bounds the queue: far more than one node has containers.
	maxReleases = 10_000

	// maxReplay bounds how many are replayed beside other calls.
	maxReplay = 50

	corruptSuffix = ".corrupt"
)

type release struct {
	Format      int          `json:"format"`
	Store       string       `json:"store"` // which datastore, without its credentials
	Queued      time.Time    `json:"queued"`
	ContainerID string       `json:"id"`
	IfName      string       `json:"ifname"`
	PodRef      string       `json:"podref,omitempty"`
	Node        string       `json:"node,omitempty"`
	Pools       []poolName   `json:"pools"`
	Slices      []sliceList  `json:"slices,omitempty"`
	Previous    []netip.Addr `json:"previous,omitempty"`
	Holdings    []entry      `json:"holdings,omitempty"`
}

type poolName struct {
	Network string       `json:"network,omitempty"`
	Node    string       `json:"node,omitempty"`
	Range   netip.Prefix `json:"range"`
}

// sliceList is where to look for slices of the node: see ipam.SliceList.
type sliceList struct {
	Space   string       `json:"space,omitempty"`
	Network string       `json:"network"`
	Range   netip.Prefix `json:"range"`
	First   bool         `json:"first,omitempty"`
}

// NewReleases is the queue below a state directory, for the releases of one store. Its
// name is the kind and where it is, "etcd 10.0.0.1:2379,10.0.0.2:2379": two names that
// share a place are of the same store.
func NewReleases(stateDirectory, store string) *Releases {
	return &Releases{directory: filepath.Join(stateDirectory, "releases"), store: store}
}

// Put queues a release. An error means that it is not queued.
func (q *Releases) Put(r *ipam.Removal, now time.Time) error {
	files, err := q.files()
	if err != nil {
		return err
	}
	again := slices.ContainsFunc(files, func(name string) bool { return name == containerFile(r.Owner) })
	if len(files) >= maxReleases && !again {
		return fmt.Errorf("release queue: %s is full (%d files): is the datastore out of reach?", q.directory, len(files))
	}
	queued := release{
		Format: releaseFormat, Store: q.store, Queued: now.UTC(),
		ContainerID: r.Owner.ContainerID, IfName: r.Owner.IfName, PodRef: r.Owner.PodRef, Node: r.Owner.Node,
		Previous: r.Previous, Holdings: entriesOf(r.Holdings),
	}
	for _, id := range r.Pools {
		queued.Pools = append(queued.Pools, poolName{id.Network, id.Node, id.Range})
	}
	for _, list := range r.Slices {
		queued.Slices = append(queued.Slices, sliceList(list))
	}
	data, err := json.Marshal(queued)
	if err == nil {
		err = replace(q.path(r.Owner), data, true)
	}
	if err != nil {
		return fmt.Errorf("release queue: %w", err)
	}
	return nil
}

// Drop removes the queued release of a container's interface: it has been carried
// out, or the runtime starts the same container again.
func (q *Releases) Drop(owner ipam.Owner) error {
	if err := os.Remove(q.path(owner)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release queue: %w", err)
	}
	return nil
}

// files lists the names of queued releases. What killed processes left half written
// is cleared away.
func (q *Releases) files() ([]string, error) {
	entries, err := os.ReadDir(q.directory)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("release queue: %w", err)
	}
	var names []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, "."):
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > abandonedAge {
				_ = os.Remove(filepath.Join(q.directory, name))
			}
		case !strings.HasSuffix(name, corruptSuffix):
			names = append(names, name)
		}
	}
	return names, nil
}

// Pending lists some of the queued releases of this store. A file that cannot be
// understood is set aside under another name, and reported once.
func (q *Releases) Pending() ([]*ipam.Removal, error) {
	names, failed := q.files()
	if n := len(names); n > maxReplay { // some that fail each time must not keep others from their turn
		start := rand.IntN(n)
		names = slices.Concat(names[start:], names[:start])
	}
	var pending []*ipam.Removal
	for _, name := range names {
		if len(pending) == maxReplay {
			break
		}
		r, err := q.load(name)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if sameStore(r.Store, q.store) {
			pending = append(pending, r.removal())
		}
	}
	return pending, failed
}

// sameStore reports whether two names share the kind and a place. A cluster that got
// another member since a release was queued is still the same.
func sameStore(a, b string) bool {
	kind, places, _ := strings.Cut(a, " ")
	otherKind, otherPlaces, _ := strings.Cut(b, " ")
	if kind != otherKind {
		return false
	}
	others := strings.Split(otherPlaces, ",")
	return slices.ContainsFunc(strings.Split(places, ","), func(place string) bool { return slices.Contains(others, place) })
}

func (q *Releases) load(name string) (*release, error) {
	path := filepath.Join(q.directory, name)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &release{}, nil // carried out meanwhile
	}
	if err != nil {
		return nil, fmt.Errorf("release queue: %w", err)
	}
	var r release
	err = json.Unmarshal(data, &r)
	if err == nil && (r.Format != releaseFormat || r.ContainerID == "") {
		err = fmt.Errorf("format %d, container %q", r.Format, r.ContainerID)
	}
	if err != nil {
		aside := path + corruptSuffix
		return nil, fmt.Errorf("release queue: a file cannot be understood and is set aside as %s: %w",
			aside, errors.Join(err, os.Rename(path, aside)))
	}
	return &r, nil
}

func (r *release) removal() *ipam.Removal {
	removal := &ipam.Removal{
		Owner:    ipam.Owner{ContainerID: r.ContainerID, IfName: r.IfName, PodRef: r.PodRef, Node: r.Node},
		Previous: r.Previous, Holdings: holdingsOf(r.Holdings), Late: true,
	}
	for _, p := range r.Pools {
		removal.Pools = append(removal.Pools, ipam.PoolID{Network: p.Network, Node: p.Node, Range: p.Range})
	}
	for _, list := range r.Slices {
		removal.Slices = append(removal.Slices, ipam.SliceList(list))
	}
	return removal
}

func (q *Releases) path(owner ipam.Owner) string {
	return filepath.Join(q.directory, containerFile(owner))
}
