package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Users whose tokens every control plane knows (see ControlPlane.Token). Admin
// may do everything; the others nothing but what a test binds to their names by
// RBAC.
const (
	Admin  = "admin"
	Nobody = "nobody" // for tests of refusals: bind nothing to it
	User1  = "u1"
	User2  = "u2"
	User3  = "u3"
	User4  = "u4"
	User5  = "u5"
)

// ControlPlane is a real etcd and a real API server, as child processes on
// loopback. There is no controller manager: namespaces are never emptied, and
// service accounts appear only if a test creates them.
type ControlPlane struct {
	URL  string // of the API server, without a slash at the end
	CA   []byte // PEM: who signed the API server's certificate
	Etcd *Etcd  // its only member may be stopped and killed, too

	dir    *scratch
	port   *port
	server server
	tokens map[string]string
	client *Client
	names  atomic.Int64 // of namespaces

	mu      sync.Mutex
	clients []*http.Transport // whose connections are stale after a restart
}

// Start starts a control plane for one test and ends it with the test. It takes
// some seconds: most tests should share one per package (see Shared), and only
// those that stop or kill its processes need their own. More flags for the API
// server may follow.
func Start(tb testing.TB, apiServerFlags ...string) *ControlPlane {
	tb.Helper()
	cp, err := Launch(Binary(tb), apiServerFlags...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cp.Close(); err != nil {
			tb.Error(err)
		}
	})
	return cp
}

// Launch starts a control plane from a binary (see Build) without a test; the
// caller has to Close it. Its processes end with this process in any case.
func Launch(binary string, apiServerFlags ...string) (*ControlPlane, error) {
	dir, err := newScratch()
	if err != nil {
		return nil, fmt.Errorf("a directory for the control plane: %w", err)
	}
	cp := &ControlPlane{dir: dir, server: server{binary: binary, log: dir.file("apiserver.log")}}
	if err := cp.launch(apiServerFlags); err != nil {
		_ = cp.Close() // the error that matters is the first
		return nil, err
	}
	return cp, nil
}

func (cp *ControlPlane) launch(flags []string) (err error) {
	if cp.Etcd, err = newEtcd(cp.server.binary, cp.dir, 1, onLoopback); err != nil {
		return err
	}
	if cp.port, err = reservePort(); err != nil {
		return err
	}
	cp.URL = "https://" + cp.port.address()
	if err := cp.writeFiles(); err != nil {
		return fmt.Errorf("files of the API server: %w", err)
	}
	cp.server.name = "the API server at " + cp.URL
	cp.server.args = append(cp.flags(), flags...)
	cp.client = NewClient(cp.URL, cp.tokens[Admin], cp.CA)
	cp.stale(cp.client.http.Transport.(*http.Transport))
	return cp.StartAPIServer()
}

// writeFiles makes certificates, keys and tokens.
func (cp *ControlPlane) writeFiles() error {
	ca, err := newAuthority("testenv API server CA")
	if err != nil {
		return err
	}
	serving, err := ca.serving("kube-apiserver")
	if err != nil {
		return err
	}
	accounts, err := signingKey()
	if err != nil {
		return err
	}
	cp.CA = ca.pem
	for name, content := range map[string][]byte{
		"tls.crt": serving.cert, "tls.key": serving.key,
		"accounts.pub": accounts.cert, "accounts.key": accounts.key,
		"tokens.csv": cp.makeTokens(),
	} {
		if err := os.WriteFile(cp.dir.file(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (cp *ControlPlane) makeTokens() []byte {
	cp.tokens = map[string]string{}
	var file strings.Builder
	for _, user := range []string{Admin, Nobody, User1, User2, User3, User4, User5} {
		cp.tokens[user] = rand.Text()
		fmt.Fprintf(&file, "%s,%s,%s", cp.tokens[user], user, user)
		if user == Admin {
			file.WriteString(`,"system:masters"`)
		}
		file.WriteByte('\n')
	}
	return []byte(file.String())
}

func (cp *ControlPlane) flags() []string {
	return []string{
		"kube-apiserver",
		"--etcd-servers=" + cp.Etcd.Endpoints(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(int(cp.port.number)),
		"--permit-port-sharing=true",
		// Loopback is no address for the service "kubernetes", and nobody needs
		// its endpoints here; without an address the host's route is asked.
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--cert-dir=" + cp.dir.path,
		"--tls-cert-file=" + cp.dir.file("tls.crt"),
		"--tls-private-key-file=" + cp.dir.file("tls.key"),
		"--token-auth-file=" + cp.dir.file("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + cp.dir.file("accounts.pub"),
		"--service-account-signing-key-file=" + cp.dir.file("accounts.key"),
		// It wants accounts that a controller manager would make.
		"--disable-admission-plugins=ServiceAccount",
		"--allow-privileged=true",
	}
}

// Close kills the control plane's processes and removes its data.
func (cp *ControlPlane) Close() error {
	cp.KillAPIServer()
	cp.Etcd.kill()
	cp.port.release()
	return cp.dir.remove()
}

// StartAPIServer starts the API server after it was stopped or killed, at the
// same address, and returns when it is ready.
func (cp *ControlPlane) StartAPIServer() error {
	if err := cp.server.start(); err != nil {
		return err
	}
	cp.mu.Lock()
	for _, transport := range cp.clients {
		transport.CloseIdleConnections()
	}
	cp.mu.Unlock()
	return cp.server.wait(cp.ready)
}

func (cp *ControlPlane) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return cp.client.Get(ctx, "/readyz", nil)
}

// StopAPIServer ends the API server in order: requests under way are answered.
func (cp *ControlPlane) StopAPIServer() { cp.server.stop() }

// KillAPIServer ends the API server at once (SIGKILL). What it has answered is
// in etcd; what was under way may be or not.
func (cp *ControlPlane) KillAPIServer() { cp.server.kill() }

// StartEtcd starts etcd after it was stopped or killed, with the data it had,
// and returns when it is ready, and so is the API server if that runs.
func (cp *ControlPlane) StartEtcd() error {
	member := cp.Etcd.Members[0]
	if err := member.Start(); err != nil {
		return err
	}
	if err := member.WaitHealthy(); err != nil || !cp.server.alive() {
		return err
	}
	return cp.server.wait(cp.ready)
}

// StopEtcd ends etcd in order. The API server runs on without its store: it lets
// requests wait for a minute.
func (cp *ControlPlane) StopEtcd() { cp.Etcd.Members[0].Stop() }

// KillEtcd ends etcd at once (SIGKILL).
func (cp *ControlPlane) KillEtcd() { cp.Etcd.Members[0].Kill() }

// Client is the administrator's client, direct to the API server. Requests
// through it are counted nowhere.
func (cp *ControlPlane) Client() *Client { return cp.client }

// Must is Client().Must.
func (cp *ControlPlane) Must(tb testing.TB) Must { return cp.client.Must(tb) }

// Token is the token of one of the users named above.
func (cp *ControlPlane) Token(user string) string { return cp.tokens[user] }

// stale registers a transport whose idle connections are closed when the API
// server starts again.
func (cp *ControlPlane) stale(transport *http.Transport) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	cp.clients = append(cp.clients, transport)
}

// Namespace creates a namespace of its own for a test and answers its name,
// which says whose it is.
func (cp *ControlPlane) Namespace(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("%s-%d", label(tb.Name()), cp.names.Add(1))
	cp.Must(tb).Create("/api/v1/namespaces", Object{"metadata": Object{"name": name}})
	return name
}

// label makes a name that Kubernetes accepts out of a test's, with room left for
// a suffix.
func label(test string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(strings.TrimPrefix(test, "Test")))
	const most = 40
	return "t-" + strings.Trim(clean[:min(len(clean), most)], "-")
}
