package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Journal remembers the addresses that this node handed out, one file for each
// interface of each pod:
//
//	<state directory>/journal/<namespace>_<pod>@<interface>
//	<state directory>/journal/container_<container id>@<interface>   (no pod)
//
// A file is a JSON document {"holdings": [{"network", "node", "range", "address",
// "id", "podref", "ifname", "gen"}, …]}. It is replaced by rename, so that it is
// whole or not there; it is not synced, since losing it costs a few requests.
type Journal struct {
	directory string
}

var _ ipam.Journal = (*Journal)(nil)

// NewJournal keeps the journal below a state directory, which need not exist.
func NewJournal(stateDirectory string) *Journal {
	return &Journal{directory: filepath.Join(stateDirectory, "journal")}
}

type page struct {
	Holdings []entry `json:"holdings"`
}

type entry struct {
	Network     string       `json:"network,omitempty"`
	Node        string       `json:"node,omitempty"`
	Range       netip.Prefix `json:"range"`
	Address     netip.Addr   `json:"address"`
	ContainerID string       `json:"id"`
	PodRef      string       `json:"podref,omitempty"`
	IfName      string       `json:"ifname,omitempty"`
	Gen         string       `json:"gen,omitempty"`
}

func entriesOf(holdings []ipam.Holding) []entry {
	entries := make([]entry, 0, len(holdings))
	for _, h := range holdings {
		entries = append(entries, entry{
			Network: h.Pool.Network, Node: h.Pool.Node, Range: h.Pool.Range, Address: h.Address,
			ContainerID: h.Record.ContainerID, PodRef: h.Record.PodRef, IfName: h.Record.IfName, Gen: h.Record.Gen,
		})
	}
	return entries
}

func holdingsOf(entries []entry) []ipam.Holding {
	var holdings []ipam.Holding
	for _, e := range entries {
		if !e.Address.IsValid() || !e.Range.Contains(e.Address) {
			continue
		}
		holdings = append(holdings, ipam.Holding{
			Pool:    ipam.PoolID{Network: e.Network, Node: e.Node, Range: e.Range},
			Address: e.Address,
			Record:  ipam.Record{ContainerID: e.ContainerID, IfName: e.IfName, PodRef: e.PodRef, Gen: e.Gen},
		})
	}
	return holdings
}

// Load returns what is remembered for the owner's pod and interface.
func (j *Journal) Load(owner ipam.Owner) ([]ipam.Holding, error) {
	data, err := os.ReadFile(j.path(owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var p page
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("journal: %s: %w", j.path(owner), err)
	}
	return holdingsOf(p.Holdings), nil
}

// Save replaces what is remembered. A page that could not be replaced is removed:
// one that is out of date would hide records from a release.
func (j *Journal) Save(owner ipam.Owner, holdings []ipam.Holding) error {
	path := j.path(owner)
	if len(holdings) == 0 {
		return remove(path)
	}
	data, err := json.Marshal(page{entriesOf(holdings)})
	if err == nil {
		err = replace(path, data, false)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("journal: %w", err), remove(path))
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (j *Journal) path(owner ipam.Owner) string { return filepath.Join(j.directory, podFile(owner)) }
