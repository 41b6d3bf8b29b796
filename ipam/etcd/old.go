package etcd

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// oldRoot is where version 0.5 of the older implementation kept a key for each range.
// Its value has a line "<address> <container id>" for each address.
const oldRoot = "/whereabouts/"

// OldPool is what version 0.5 recorded of a range.
type OldPool struct {
	Key     string
	Range   netip.Prefix // masked; invalid if the key names none
	Records map[netip.Addr]string
	Bad     []string // lines that cannot be read, or lie outside the range
}

// OldPools reads what version 0.5 left. It changes nothing.
func (s *Store) OldPools(ctx context.Context) ([]OldPool, error) {
	var pools []OldPool
	err := s.each(ctx, below(oldRoot), func(kv pair) {
		pools = append(pools, parseOld(string(kv.Key), string(kv.Value)))
	})
	if err != nil {
		return nil, fmt.Errorf("old records below %s: %w", oldRoot, err)
	}
	return pools, nil
}

func parseOld(key, value string) OldPool {
	p := OldPool{Key: key, Records: map[netip.Addr]string{}}
	p.Range, _ = parseOldRange(strings.TrimPrefix(key, oldRoot))
	for line := range strings.Lines(value) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		a, err := ipam.ParseAddr(fields[0])
		_, twice := p.Records[a]
		if err != nil || len(fields) != 2 || twice || !p.Range.IsValid() || !p.Range.Contains(a) {
			p.Bad = append(p.Bad, strings.TrimSpace(line))
			continue
		}
		p.Records[a] = fields[1]
	}
	return p
}

// parseOldRange reads a range in which each ":" and "/" has become "-".
func parseOldRange(name string) (netip.Prefix, bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 0 {
		return netip.Prefix{}, false
	}
	p, err := ipam.ParsePrefix(strings.ReplaceAll(name[:i], "-", ":") + "/" + name[i+1:])
	if err != nil {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}
