package reclaim

import (
	"net/netip"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// maxLooks bounds what is remembered between passes. What comes beyond is seen for
// the first time again in the next pass, when others will have gone.
const maxLooks = 100_000

// spot is where something is stored: an entry, or the reservation of an address
// (then there is no range), or a pool (then there is no address).
type spot struct {
	network, node string
	cidr          netip.Prefix
	address       netip.Addr
}

func entrySpot(id ipam.PoolID, a netip.Addr) spot { return spot{id.Network, id.Node, id.Range, a} }

func reservationSpot(r ipam.Reservation) spot { return spot{network: r.Space, address: r.Address} }

func poolSpot(id ipam.PoolID) spot { return entrySpot(id, netip.Addr{}) }

// sight is what was seen there. If any of it changes, it is seen for the first time.
type sight struct {
	container, ifName, podRef string
	token                     string // of an entry its Gen, of a reservation its Version
	pod                       string // UID of the pod that exists
	reason                    Reason
}

func sightOf(r ipam.Record, token string, p *Pod, reason Reason) sight {
	s := sight{container: r.ContainerID, ifName: r.IfName, podRef: r.PodRef, token: token, reason: reason}
	if p != nil {
		s.pod = p.UID
	}
	return s
}

// look is a sight and when it was first seen.
type look struct {
	sight
	first time.Time
}

// looks remembers first looks from one pass to the next.
type looks struct {
	last, now map[spot]look
}

// begin starts a pass: what is not seen in it is forgotten after it.
func (l *looks) begin() { l.last, l.now = l.now, make(map[spot]look) }

// first answers when this was first seen there, now if that is the first time.
func (l *looks) first(at spot, s sight, now time.Time) time.Time {
	for _, known := range []map[spot]look{l.now, l.last} {
		if seen, ok := known[at]; ok && seen.sight == s {
			return seen.first
		}
	}
	return now
}

// note remembers a sight for the next pass.
func (l *looks) note(at spot, s sight, first time.Time) {
	if _, ok := l.now[at]; ok || len(l.now) < maxLooks {
		l.now[at] = look{s, first}
	}
}

// forget is for what has been dealt with.
func (l *looks) forget(at spot) { delete(l.now, at) }
