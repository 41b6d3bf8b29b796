package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Users of the API server beside the nodes, all of them with every right.
const (
	adminUser   = "admin"
	controlUser = "control"
	multusUser  = "multus"
)

// patience is how long a part of the cluster may take to be there. It takes seconds;
// the rest is for machines that are busy.
const patience = 5 * time.Minute

// control is the control plane: its processes are in the fabric's namespace.
type control struct {
	dir       string
	tokens    map[string]string // by user
	processes []*testenv.Process
}

// startControl starts the control plane and returns when its API server is ready.
func (c *Cluster) startControl(binary string) error {
	if err := os.MkdirAll(c.control.dir, 0o700); err != nil {
		return err
	}
	if err := c.control.writeKeys(); err != nil {
		return err
	}
	if err := c.startProcess("etcd", binary, "etcd", "--data-dir", c.control.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	if err := c.startProcess("kube-apiserver", binary, c.control.apiServer()...); err != nil {
		return err
	}
	if err := wait("the API server's certificate", func() error {
		_, err := os.ReadFile(c.control.file("apiserver.crt"))
		return err
	}); err != nil {
		return err
	}
	if err := os.WriteFile(c.Kubeconfig(), []byte(c.kubeconfig(adminUser)), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(c.control.file("kubeconfig"), []byte(c.kubeconfig(controlUser)), 0o600); err != nil {
		return err
	}
	if err := wait("the API server", func() error {
		_, err := c.Kubectl("", "get", "--raw", "/readyz")
		return err
	}); err != nil {
		return err
	}
	err := c.startProcess("kube-controller-manager", binary, "kube-controller-manager",
		"--kubeconfig="+c.control.file("kubeconfig"), "--leader-elect=false", "--secure-port=0",
		"--service-account-private-key-file="+c.control.file("accounts.key"), "--root-ca-file="+c.control.file("apiserver.crt"),
		"--node-monitor-period=2s", "--node-monitor-grace-period=25s", "--kube-api-qps=200", "--kube-api-burst=400")
	if err != nil {
		return err
	}
	return c.startProcess("kube-scheduler", filepath.Join(c.tools, "kube-scheduler"),
		"--kubeconfig="+c.control.file("kubeconfig"), "--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")
}

func (c *Cluster) startProcess(name, program string, args ...string) error {
	process, err := testenv.StartProcess(c.fabric, c.control.file(name+".log"), exec.Command(program, args...))
	if err == nil {
		c.control.processes = append(c.control.processes, process)
	}
	return err
}

func (c *control) file(name string) string { return filepath.Join(c.dir, name) }

func (c *control) apiServer() []string {
	return []string{
		"kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=" + apiAddress, "--advertise-address=" + apiAddress, "--secure-port=443",
		"--service-cluster-ip-range=" + serviceRange, "--cert-dir=" + c.dir,
		"--token-auth-file=" + c.file("tokens.csv"), "--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.file("accounts.key"), "--service-account-signing-key-file=" + c.file("accounts.key"),
		"--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--audit-policy-file=" + c.file("audit.yaml"), "--audit-log-path=" + c.file("audit.log"),
	}
}

// auditPolicy records who asked for what, and whether it was allowed: no contents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - {level: Metadata, userGroups: [system:serviceaccounts]}
  - {level: None}
`

func (c *control) writeKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	c.tokens = map[string]string{}
	var tokens strings.Builder
	for _, user := range []string{adminUser, controlUser, multusUser} {
		c.tokens[user] = rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,system:masters\n", c.tokens[user], user, user)
	}
	for i := 1; i <= MostNodes; i++ {
		user := fmt.Sprintf("system:node:node%d", i)
		c.tokens[user] = rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,system:nodes\n", c.tokens[user], user, user)
	}
	for name, data := range map[string][]byte{
		"accounts.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		"tokens.csv":   []byte(tokens.String()),
		"audit.yaml":   []byte(auditPolicy),
	} {
		if err := os.WriteFile(c.file(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig is one for a user. The API server's certificate signs itself.
func (c *Cluster) kubeconfig(user string) string {
	authority, _ := os.ReadFile(c.control.file("apiserver.crt")) // awaited before
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: e2e, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: %q, user: {token: %s}}]
contexts: [{name: e2e, context: {cluster: e2e, user: %[3]q}}]
current-context: e2e
`, apiAddress, base64.StdEncoding.EncodeToString(authority), user, c.control.tokens[user])
}

// wait asks until there is no error.
func wait(what string, ask func() error) error {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		err := ask()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: not within %s: %w", what, patience, err)
		}
	}
}
