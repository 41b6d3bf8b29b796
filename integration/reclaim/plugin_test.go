package reclaim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// machine is a node as the plugin sees it.
type machine struct {
	name, runDir, stateDir string
}

func encode(tb interface {
	Helper()
	Fatal(...any)
}, value any,
) string {
	tb.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

// call runs the plugin once, as a runtime does.
func (m machine) call(verb string, p *pod, n network) (stdout []byte, err error) {
	cmd := exec.Command(suite.Binary)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + verb, "CNI_PATH=/opt/cni/bin", "NODENAME=" + m.name,
		"WHEREABOUTS_RUN_DIR=" + m.runDir, "WHEREABOUTS_STATE_DIR=" + m.stateDir,
		"CNI_CONTAINERID=" + p.container, "CNI_IFNAME=" + p.ifName, "CNI_NETNS=/var/run/netns/x", "CNI_NETNS_OVERRIDE=1",
	}
	if p.name != "" {
		cmd.Env = append(cmd.Env, "CNI_ARGS="+strings.Join([]string{
			"IgnoreUnknown=1", "K8S_POD_NAMESPACE=" + p.namespace, "K8S_POD_NAME=" + p.name, "K8S_POD_UID=" + p.uid,
			"K8S_POD_INFRA_CONTAINER_ID=" + p.container,
		}, ";"))
	}
	config, err := json.Marshal(n.config())
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(config), &stderr
	if stdout, err = cmd.Output(); err != nil {
		return nil, fmt.Errorf("%s of %s on %s: %w\n%s%s", verb, p.container, m.name, err, stdout, stderr.Bytes())
	}
	return stdout, nil
}

// add answers the address that the plugin gives to a pod.
func (m machine) add(p *pod, n network) (netip.Addr, error) {
	out, err := m.call("ADD", p, n)
	if err != nil {
		return netip.Addr{}, err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.IPs) != 1 {
		return netip.Addr{}, fmt.Errorf("ADD of %s: not a result with one address: %q", p.container, out)
	}
	return result.IPs[0].Address.Addr(), nil
}

func (m machine) del(p *pod, n network) error {
	_, err := m.call("DEL", p, n)
	return err
}

// mustAdd is add for a test's own goroutine.
func (w *world) mustAdd(m machine, p *pod, n network) netip.Addr {
	w.Helper()
	a, err := m.add(p, n)
	if err != nil {
		w.Fatal(err)
	}
	return a
}
