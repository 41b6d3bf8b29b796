package testenv

import (
	"errors"
	"fmt"
	"testing"
)

// StartEtcdApart is StartEtcd with each member in a network namespace of its own,
// joined by a bridge. Cut and Heal take away and give back a member's network, for its
// peers and its clients alike. Processes of the test get to a member by Member.Proxy,
// which listens on loopback as always: nothing else reaches it from there. The test is
// skipped where network namespaces cannot be made.
func StartEtcdApart(tb testing.TB, members int) *Etcd {
	tb.Helper()
	NeedsIP(tb)
	hub := NewSpace(tb)
	err := hub.IP(
		"link add hub type bridge",
		"addr add 10.91.0.1/24 dev hub",
		"link set hub up",
	)
	if err != nil {
		tb.Fatal(err)
	}
	return startEtcd(tb, members, func(m *Member, number int) error { return m.plug(tb, hub, number) })
}

// link is the only way to a member that lives apart.
type link struct {
	hub  *Space
	name string // of the hub's end
}

// plug gives a member a namespace with a link to the hub.
func (m *Member) plug(tb testing.TB, hub *Space, number int) error {
	space := NewSpace(tb)
	address := fmt.Sprintf("10.91.0.%d", 10+number)
	m.server.space, m.link = space, &link{hub, m.Name}
	m.ClientURL, m.PeerURL = "http://"+address+":2379", "http://"+address+":2380"
	return errors.Join(
		hub.IP(
			"link add "+m.Name+" type veth peer name uplink netns "+space.Path(),
			"link set "+m.Name+" master hub",
			"link set "+m.Name+" up",
		),
		space.IP(
			"link set lo up",
			"addr add "+address+"/24 dev uplink",
			"link set uplink up",
		),
	)
}

// Cut takes the network of a member of StartEtcdApart away. Its process goes on, and
// connections seem to be there on both sides until somebody loses patience.
func (m *Member) Cut() error { return m.link.hub.IP("link set " + m.link.name + " down") }

// Heal undoes Cut. It does not wait: see WaitHealthy.
func (m *Member) Heal() error { return m.link.hub.IP("link set " + m.link.name + " up") }
