package ipam

import (
	"log/slog"
	"net/netip"
	"slices"
)

// Journal is what a node remembers of the addresses it handed out, so that a
// release finds them without reading pools, also after their range has been
// edited away from the network configuration. It is a help, never the truth: each
// thing it says is tested against the store, and a node that cannot keep one works
// without.
type Journal interface {
	// Load returns what is remembered for the owner's pod and interface (for
	// its container and interface when there is no pod), of older containers
	// too.
	Load(owner Owner) ([]Holding, error)
	// Save replaces what Load returns; nothing removes it.
	Save(owner Owner, holdings []Holding) error
}

// Holding is a record that may exist: it is noted before it is written.
type Holding struct {
	Pool    PoolID
	Address netip.Addr
	Record  Record
}

// memory is the journal's page for one owner during one call.
type memory struct {
	journal Journal
	owner   Owner
	log     *slog.Logger
	loaded  []Holding
	dirty   bool
}

// recall opens the owner's page. A journal that cannot be read is no reason to
// fail: the pools know.
func (a *Allocator) recall(owner Owner) *memory {
	m := &memory{journal: a.Journal, owner: owner, log: a.Log}
	loaded, err := a.Journal.Load(owner)
	if err != nil {
		a.Log.Debug("node's journal cannot be read", "error", err)
		return m
	}
	m.loaded = loaded
	return m
}

// own lists what this very container may hold.
func (m *memory) own() []Holding {
	return slices.DeleteFunc(slices.Clone(m.loaded), func(h Holding) bool {
		return !h.Record.OfContainer(m.owner.ContainerID, m.owner.IfName)
	})
}

// intended lists the addresses that the owner may hold, or have reserved when a call
// for it died: one of an older container, or an earlier one for this container, which
// is repeated when the process dies that carried it out.
func (m *memory) intended(owner Owner) []netip.Addr {
	var addresses []netip.Addr
	for _, h := range m.loaded {
		if h.Record.OwnedBy(owner) {
			addresses = append(addresses, h.Address)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// intend notes what is about to be written, before it is. What this container wrote
// before stays noted beside it: until the write is answered, either may be stored.
func (m *memory) intend(p *plan, changes []Change) {
	next := p.kept()
	for _, c := range changes {
		next = append(next, Holding{c.Pool, c.Address, *c.After})
	}
	m.save(append(next, m.without(next, true)...))
	m.dirty = true
}

// confirm forgets what has been rewritten, once that is certain.
func (m *memory) confirm(p *plan) {
	next := p.kept()
	if rest := m.without(next, false); len(rest) < len(m.without(next, true)) {
		m.save(append(next, rest...))
	}
}

// without lists what was loaded, but for the addresses of next; those of this
// container are kept if own is set.
func (m *memory) without(next []Holding, own bool) []Holding {
	return slices.DeleteFunc(slices.Clone(m.loaded), func(h Holding) bool {
		if own && h.Record.OfContainer(m.owner.ContainerID, m.owner.IfName) {
			return false
		}
		return slices.ContainsFunc(next, func(n Holding) bool { return n.Pool == h.Pool && n.Address == h.Address })
	})
}

// restore forgets what was intended and did not come about. Records that were
// rewritten, or may have been, keep their new tokens and stay noted.
func (m *memory) restore(rewritten []Holding) {
	if m.dirty {
		m.save(append(rewritten, m.loaded...))
	}
}

// forget drops what this container held, once it is released.
func (m *memory) forget() {
	if len(m.loaded) == 0 {
		return
	}
	m.save(slices.DeleteFunc(slices.Clone(m.loaded), func(h Holding) bool {
		return h.Record.OfContainer(m.owner.ContainerID, m.owner.IfName)
	}))
}

func (m *memory) save(holdings []Holding) {
	if err := m.journal.Save(m.owner, holdings); err != nil {
		m.log.Debug("node's journal cannot be written", "error", err)
	}
}

// NoJournal remembers nothing.
type NoJournal struct{}

// Load returns nothing.
func (NoJournal) Load(Owner) ([]Holding, error) { return nil, nil }

// Save does nothing.
func (NoJournal) Save(Owner, []Holding) error { return nil }
