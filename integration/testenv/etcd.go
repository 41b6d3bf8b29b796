package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startTimeout is how long a server may take until it serves. It takes a few
// seconds; the rest is for machines that are busy.
const startTimeout = 3 * time.Minute

// Etcd is a real etcd cluster on loopback, without logins and, but for
// StartSecureEtcd, without TLS. It does not sync its files: it survives the death of its processes, as tests
// need it to, and not that of the machine.
type Etcd struct {
	Members []*Member

	dir *scratch
}

// Member is one server of an etcd cluster. Its addresses stay the same for life.
type Member struct {
	Name      string // "m0", "m1", ...
	ClientURL string
	PeerURL   string

	server       server
	client, peer *port   // nil in a network of its own
	link         *link   // nil on loopback
	secure       *secure // nil without TLS
}

// StartEtcd starts an etcd cluster of so many members and ends it with the
// test.
func StartEtcd(tb testing.TB, members int) *Etcd {
	tb.Helper()
	return startEtcd(tb, members, onLoopback)
}

func startEtcd(tb testing.TB, members int, at site) *Etcd {
	tb.Helper()
	binary := Binary(tb)
	dir, err := newScratch()
	if err != nil {
		tb.Fatal(err)
	}
	etcd, err := newEtcd(binary, dir, members, at)
	tb.Cleanup(func() {
		etcd.kill()
		if err := dir.remove(); err != nil {
			tb.Error(err)
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	return etcd
}

// site gives a member its addresses.
type site func(m *Member, number int) error

// newEtcd starts a cluster. What it answers has to be killed even if there is
// an error.
func newEtcd(binary string, dir *scratch, members int, at site) (*Etcd, error) {
	e := &Etcd{dir: dir}
	var cluster []string
	for i := range members {
		m := &Member{Name: fmt.Sprintf("m%d", i)}
		m.server = server{name: "etcd " + m.Name, binary: binary, log: dir.file(m.Name + ".log")}
		e.Members = append(e.Members, m)
		if err := at(m, i); err != nil {
			return e, err
		}
		cluster = append(cluster, m.Name+"="+m.PeerURL)
	}
	for _, m := range e.Members {
		m.server.args = m.flags(dir.file(m.Name), cluster)
		if err := m.Start(); err != nil {
			return e, err
		}
	}
	for _, m := range e.Members {
		if err := m.WaitHealthy(); err != nil {
			return e, err
		}
	}
	return e, nil
}

func onLoopback(m *Member, _ int) (err error) {
	if m.client, err = reservePort(); err != nil {
		return err
	}
	if m.peer, err = reservePort(); err != nil {
		return err
	}
	m.ClientURL, m.PeerURL = "http://"+m.client.address(), "http://"+m.peer.address()
	return nil
}

func (m *Member) flags(data string, cluster []string) []string {
	flags := []string{
		"etcd", "--name", m.Name, "--data-dir", data,
		"--listen-client-urls", m.ClientURL, "--advertise-client-urls", m.ClientURL,
		"--listen-peer-urls", m.PeerURL, "--initial-advertise-peer-urls", m.PeerURL,
		"--initial-cluster", strings.Join(cluster, ","),
		"--socket-reuse-port", "--unsafe-no-fsync", "--log-level", "warn",
	}
	if m.secure != nil {
		flags = append(flags, m.secure.flags()...)
	}
	if len(cluster) == 1 {
		// Alone it needs no patience before it elects itself.
		flags = append(flags, "--heartbeat-interval", "10", "--election-timeout", "100")
	}
	return flags
}

// Start starts a member that was stopped or killed, with the data it had. It
// does not wait: see WaitHealthy, which needs a majority.
func (m *Member) Start() error { return m.server.start() }

// WaitHealthy returns when the member answers and knows a leader.
func (m *Member) WaitHealthy() error {
	client := m.plain()
	return m.server.wait(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return client.Get(ctx, "/health", nil)
	})
}

// Stop ends the member in order.
func (m *Member) Stop() { m.server.stop() }

// Kill ends the member as a power cut would (SIGKILL).
func (m *Member) Kill() { m.server.kill() }

// ID answers the member's id in the cluster and that of its leader, which is
// "0" when there is none, as decimal numbers.
func (m *Member) ID() (self, leader string, err error) {
	var status struct {
		Header struct {
			MemberID string `json:"member_id"`
		} `json:"header"`
		Leader string `json:"leader"`
	}
	err = m.call("/v3/maintenance/status", Object{}, &status)
	if status.Leader == "" {
		status.Leader = "0"
	}
	return status.Header.MemberID, status.Leader, err
}

// plain is a client that keeps no connection.
func (m *Member) plain() *Client {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: m.dial()}
	if m.secure != nil {
		transport.TLSClientConfig = m.secure.client
	}
	return &Client{server: m.ClientURL, http: &http.Client{Transport: transport}}
}

// dial is how the member is reached; nil is the usual way.
func (m *Member) dial() func(ctx context.Context, network, address string) (net.Conn, error) {
	if m.link == nil {
		return nil
	}
	return m.link.hub.dial
}

// call makes one request to the member's JSON gateway.
func (m *Member) call(path string, body, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := m.plain().Create(ctx, path, body, out); err != nil {
		return fmt.Errorf("etcd %s: %w", m.Name, err)
	}
	return nil
}

// Proxy starts a proxy in front of the member's JSON gateway that ends with the test.
// It has a certificate of its own, which p.CA signs.
func (m *Member) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	p, err := newProxy(m.ClientURL, nil)
	if err != nil {
		tb.Fatal(err)
	}
	p.transport.DialContext = m.dial()
	tb.Cleanup(p.close)
	return p
}

// Proxies starts a proxy in front of each member, and answers the file of the authorities
// that signed their certificates.
func (e *Etcd) Proxies(tb testing.TB) (all []*Proxy, ca string) {
	tb.Helper()
	var pem []byte
	for _, m := range e.Members {
		p := m.Proxy(tb)
		all, pem = append(all, p), append(pem, p.CA...)
	}
	ca = filepath.Join(tb.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem, 0o600); err != nil {
		tb.Fatal(err)
	}
	return all, ca
}

// Endpoints lists the client URLs of all members with commas between, as
// configurations want it.
func (e *Etcd) Endpoints() string {
	var urls []string
	for _, m := range e.Members {
		urls = append(urls, m.ClientURL)
	}
	return strings.Join(urls, ",")
}

// Leader answers the member that leads, as the running members see it. It waits while
// they elect one.
func (e *Etcd) Leader() (found *Member, err error) {
	err = poll(startTimeout, waiting, func() error {
		found, err = e.leader()
		return err
	})
	return found, err
}

// waiting is for poll: there is always hope.
func waiting() bool { return true }

func (e *Etcd) leader() (*Member, error) {
	ids := map[string]*Member{}
	var lead string
	for _, m := range e.Members {
		if !m.server.alive() {
			continue
		}
		self, leader, err := m.ID()
		if err != nil {
			return nil, err
		}
		ids[self] = m
		if leader != "0" {
			lead = leader
		}
	}
	if m := ids[lead]; m != nil {
		return m, nil
	}
	return nil, errors.New("the etcd cluster has no leader among its running members")
}

// MoveLeader makes another member lead, and returns when it does. It tries again while
// an election is under way.
func (e *Etcd) MoveLeader(to *Member) error {
	return poll(startTimeout, waiting, func() error {
		from, err := e.leader()
		if err != nil || from == to {
			return err
		}
		id, _, err := to.ID()
		if err != nil {
			return err
		}
		return from.call("/v3/maintenance/transfer-leadership", Object{"targetID": id}, nil)
	})
}

// kill ends all members and gives their ports back.
func (e *Etcd) kill() {
	if e == nil {
		return
	}
	for _, m := range e.Members {
		m.server.kill()
		m.client.release()
		m.peer.release()
	}
}
