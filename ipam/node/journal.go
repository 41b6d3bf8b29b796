package node

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

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
	var holdings []ipam.Holding
	for _, e := range p.Holdings {
		if !e.Address.IsValid() || !e.Range.Contains(e.Address) {
			continue
		}
		holdings = append(holdings, ipam.Holding{
			Pool:    ipam.PoolID{Network: e.Network, Node: e.Node, Range: e.Range},
			Address: e.Address,
			Record:  ipam.Record{ContainerID: e.ContainerID, IfName: e.IfName, PodRef: e.PodRef, Gen: e.Gen},
		})
	}
	return holdings, nil
}

// Save replaces what is remembered. A page that could not be replaced is removed:
// one that is out of date would hide records from a release.
func (j *Journal) Save(owner ipam.Owner, holdings []ipam.Holding) error {
	path := j.path(owner)
	if len(holdings) == 0 {
		return remove(path)
	}
	p := page{Holdings: make([]entry, 0, len(holdings))}
	for _, h := range holdings {
		p.Holdings = append(p.Holdings, entry{
			Network: h.Pool.Network, Node: h.Pool.Node, Range: h.Pool.Range, Address: h.Address,
			ContainerID: h.Record.ContainerID, PodRef: h.Record.PodRef, IfName: h.Record.IfName, Gen: h.Record.Gen,
		})
	}
	data, err := json.Marshal(p)
	if err == nil {
		err = j.replace(path, data)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("journal: %w", err), remove(path))
	}
	return nil
}

func (j *Journal) replace(path string, data []byte) error {
	if err := os.MkdirAll(j.directory, 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(j.directory, ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails once it has been renamed
	_, err = temporary.Write(data)
	if err := errors.Join(err, temporary.Close()); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// maxFileName is below the limit of all usual file systems (255 bytes).
const maxFileName = 200

func (j *Journal) path(owner ipam.Owner) string {
	name := "container_" + owner.ContainerID
	if namespace, pod, ok := strings.Cut(owner.PodRef, "/"); ok {
		name = namespace + "_" + pod
	}
	name += "@" + owner.IfName
	if len(name) > maxFileName || strings.ContainsFunc(name, unsafe) || strings.HasPrefix(name, ".") {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return filepath.Join(j.directory, name)
}

// unsafe reports characters that have no business in a file name. The names come
// from the runtime, which had them from a pod.
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-@", r))
}
