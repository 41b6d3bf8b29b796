package ipam

import (
	"context"
	"fmt"
	"net/netip"
)

// Verify checks that each address of a previous result that lies in a range of the
// configuration is recorded for this container and interface. A fixed address may
// be recorded for another pod that shares it. The error names the address; it
// wraps ErrNotRecorded, unless the store cannot be read.
func (a *Allocator) Verify(ctx context.Context, cfg *Config, owner Owner, prev []netip.Addr) error {
	content := map[PoolID]*Pool{}
	for _, address := range prev {
		if isFixed(cfg, address) {
			continue
		}
		if err := a.verifyOne(ctx, cfg, owner, address, content); err != nil {
			return err
		}
	}
	return nil
}

// verifyOne accepts the address in any of the ranges around it.
func (a *Allocator) verifyOne(ctx context.Context, cfg *Config, owner Owner, address netip.Addr, content map[PoolID]*Pool) error {
	inside := false
	holder := "nobody"
	for _, r := range cfg.Ranges {
		if !r.Contains(address) {
			continue
		}
		inside = true
		id := cfg.PoolOf(r)
		if content[id] == nil {
			pool, err := a.Store.Read(ctx, id)
			if err != nil {
				return err
			}
			content[id] = pool
		}
		record, held := content[id].Records[address]
		if held && record.OfContainer(owner.ContainerID, owner.IfName) {
			return nil
		}
		if held {
			holder = fmt.Sprintf("container %s, interface %s, of %s", record.ContainerID, record.IfName, record.Holder())
		}
	}
	if !inside {
		return nil
	}
	return fmt.Errorf("%w: %s should be held by container %s, interface %s, and is held by %s",
		ErrNotRecorded, address, owner.ContainerID, owner.IfName, holder)
}

func isFixed(cfg *Config, a netip.Addr) bool {
	for _, f := range cfg.Fixed {
		if f.Address.Addr() == a {
			return true
		}
	}
	return false
}
