package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const repository = "../../.."

type object = testenv.Object

// What alerts and dashboard ask for is what the running roles serve, by name and by
// label: else they would be silent. Every metric says what it is.
func TestRolesServeWhatIsAskedFor(t *testing.T) {
	served := map[string]metric{}
	roles, call := startRoles(t)
	for role, url := range roles {
		for name, m := range scrape(t, url, call) {
			if m.help == "" || m.kind == "" {
				t.Errorf("%s: %s says neither what it is nor what that means: %+v", role, name, m)
			}
			served[name] = m
		}
	}
	if len(served) < 25 {
		t.Fatalf("only %d metrics are served: %v", len(served), slices.Sorted(maps.Keys(served)))
	}
	asked := expressions(t)
	if len(asked) < 15 {
		t.Errorf("only %d expressions were found", len(asked))
	}
	for _, expression := range asked {
		for _, wrong := range missing(t, expression, served) {
			t.Errorf("%s in %s", wrong, expression)
		}
	}
}

// The test above is only worth something if it sees what is wrong.
func TestMissingMetricsAreSeen(t *testing.T) {
	served := map[string]metric{
		"whereabouts_pool_addresses":               {labels: []string{"namespace", "pool"}},
		"whereabouts_call_duration_seconds_bucket": {labels: []string{"verb", "le"}},
		"whereabouts_calls_total":                  {labels: []string{"result", "verb"}},
		"whereabouts_reconcile_passes_total":       {},
	}
	for expression, want := range map[string]int{
		"max by (pool) (whereabouts_pool_addresses)":                             0,
		"max by (node) (whereabouts_pool_addresses)":                             1,
		"max by (instance) (whereabouts_pool_addresses)":                         0, // Prometheus adds it
		"whereabouts_pools":                                                      1,
		"sum by (le, verb) (rate(whereabouts_call_duration_seconds_bucket[5m]))": 0,
		`whereabouts_calls_total{code="x"} / up{job="x"}`:                        1,
		`whereabouts_calls_total{verb="ADD"} > whereabouts_nothing`:              1,
		"sum by (pool) (max by (node) (whereabouts_pool_addresses))":             1,
	} {
		if got := missing(t, expression, served); len(got) != want {
			t.Errorf("%s: %v", expression, got)
		}
	}
}

// startRoles starts each role on a cluster with a pool, a slice and a definition, and
// answers where they serve their metrics, and a call of the plugin on its node.
func startRoles(t *testing.T) (urls map[string]string, call func()) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "whereabouts")
	if err := testenv.BuildProgram(repository, binary); err != nil {
		t.Fatal(err)
	}
	cp := testenv.Start(t)
	cp.ApplyCRDs(t, repository+"/manifests/crds")
	cp.ApplyCRDs(t, repository+"/kube/testdata/definitions")
	namespace := cp.Namespace(t)
	seed(cp.Must(t), namespace)
	kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: namespace})
	account := t.TempDir()
	for name, content := range map[string][]byte{"token": []byte(cp.Token(testenv.Admin)), "ca.crt": cp.CA, "namespace": []byte(namespace)} {
		if err := os.WriteFile(filepath.Join(account, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	node := t.TempDir()
	directories := []string{"WHEREABOUTS_RUN_DIR=" + node + "/run", "WHEREABOUTS_STATE_DIR=" + node + "/state", "NODENAME=node-1"}
	host, port, _ := strings.Cut(strings.TrimPrefix(cp.URL, "https://"), ":")
	start := func(role string, env []string, arguments ...string) string {
		return serve(t, append(os.Environ(), env...), binary, append([]string{role, "--listen", "127.0.0.1:0"}, arguments...)...)
	}
	call = func() { add(t, binary, kubeconfig, directories) }
	return map[string]string{
		"reconcile":  start("reconcile", nil, "--kubeconfig", kubeconfig),
		"controller": start("controller", nil, "--kubeconfig", kubeconfig),
		"install": start("install", append(directories,
			"CNI_BIN_DIR="+node+"/bin", "CNI_CONF_DIR="+node+"/net.d", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port,
		), "--service-account", account),
	}, call
}

// add has the plugin give an address on the node, the same each time.
func add(t *testing.T, binary, kubeconfig string, env []string) {
	t.Helper()
	plugin := exec.Command(binary)
	plugin.Args[0] = "whereabouts"
	plugin.Env = append(env, "CNI_COMMAND=ADD", "CNI_CONTAINERID=c1", "CNI_IFNAME=net1", "CNI_NETNS=/var/run/netns/none",
		"CNI_NETNS_OVERRIDE=1", "CNI_PATH=/opt/cni/bin", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=a")
	plugin.Stdin = strings.NewReader(`{"cniVersion": "1.0.0", "name": "plain", "type": "bridge", "ipam":
		{"type": "whereabouts", "range": "10.0.0.0/24", "kubernetes": {"kubeconfig": "` + kubeconfig + `"}}}`)
	if text, err := plugin.CombinedOutput(); err != nil {
		t.Fatalf("ADD: %v\n%s", err, text)
	}
}

func seed(must testenv.Must, namespace string) {
	const group = "whereabouts.cni.cncf.io/v1alpha1"
	must.Create("/api/v1/nodes", object{"metadata": object{"name": "node-1"}})
	must.Create("/apis/"+group+"/namespaces/"+namespace+"/ippools", object{
		"apiVersion": group, "kind": "IPPool", "metadata": object{"name": "10.0.0.0-24"},
		"spec": object{"range": "10.0.0.0/24", "allocations": object{}},
	})
	for name, ipam := range map[string]string{
		"plain": `"range": "10.0.0.0/24"`, "sliced": `"range": "10.5.0.0/24", "node_slice_size": "/26"`,
	} {
		must.Create("/apis/k8s.cni.cncf.io/v1/namespaces/"+namespace+"/network-attachment-definitions", object{
			"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": object{"name": name},
			"spec": object{"config": `{"cniVersion": "1.0.0", "name": "` + name + `", "type": "bridge", "ipam": {"type": "whereabouts", ` + ipam + `}}`},
		})
	}
}

var servedAt = regexp.MustCompile(`serving metrics and health.* address=(\S+)`)

// serve starts a role, which ends with the test, and answers where it serves metrics.
func serve(t *testing.T, env []string, binary string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command(binary, arguments...)
	cmd.Env = env
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			if found := servedAt.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-done
		_ = cmd.Wait()
	})
	select {
	case a := <-address:
		return "http://" + a + "/metrics"
	case <-done:
		t.Fatalf("%v ends", arguments)
	}
	return ""
}

// metric is what is served under a name.
type metric struct {
	help, kind string
	labels     []string
}

// counted are what each role serves only when it has looked at the cluster or at its node.
var counted = []string{"whereabouts_pool_free_addresses", "whereabouts_controller_slices_assigned", "whereabouts_calls_total"}

// scrape reads what a role serves, as Prometheus does, once it has looked. Calls of the
// plugin are noted for an installer only while one runs.
func scrape(t *testing.T, url string, call func()) map[string]metric {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		call()
		found := scrapeOnce(t, url)
		if slices.ContainsFunc(counted, func(name string) bool { _, there := found[name]; return there }) {
			return found
		}
		if time.Now().After(end) {
			t.Fatalf("%s serves only %v", url, found)
		}
	}
}

func scrapeOnce(t *testing.T, url string) map[string]metric {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	p, err := textparse.New(text, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	families, found := map[string]metric{}, map[string]metric{}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		switch entry {
		case textparse.EntryHelp:
			name, help := p.Help()
			m := families[string(name)]
			m.help = string(help)
			families[string(name)] = m
		case textparse.EntryType:
			name, kind := p.Type()
			m := families[string(name)]
			m.kind = string(kind)
			families[string(name)] = m
		case textparse.EntrySeries:
			var series labels.Labels
			p.Labels(&series)
			name := series.Get(model.MetricNameLabel)
			m := families[familyOf(name, families)]
			series.Range(func(l labels.Label) {
				if l.Name != model.MetricNameLabel {
					m.labels = append(m.labels, l.Name)
				}
			})
			found[name] = m
		}
	}
}

// familyOf is the name that a series' HELP and TYPE have.
func familyOf(name string, families map[string]metric) string {
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if family, ok := strings.CutSuffix(name, suffix); ok && families[family].kind == "histogram" {
			return family
		}
	}
	return name
}

// missing lists metrics of ours that are not served, and labels that they lack. A label
// that is grouped by has to be one of every metric below.
func missing(t *testing.T, expression string, served map[string]metric) (wrong []string) {
	t.Helper()
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		use, ok := node.(*parser.VectorSelector)
		if !ok || !strings.HasPrefix(use.Name, "whereabouts_") {
			return nil
		}
		m, there := served[use.Name]
		if !there {
			wrong = append(wrong, "there is no "+use.Name)
			return nil
		}
		for _, label := range asks(use, path) {
			if !slices.Contains(append(m.labels, "instance", "job"), label) {
				wrong = append(wrong, use.Name+" has no label "+label)
			}
		}
		return nil
	})
	return wrong
}

// asks are the labels that a selector and what is around it name.
func asks(use *parser.VectorSelector, around []parser.Node) (all []string) {
	for _, m := range use.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			all = append(all, m.Name)
		}
	}
	for _, node := range around {
		if by, ok := node.(*parser.AggregateExpr); ok && !by.Without {
			all = append(all, by.Grouping...)
		}
	}
	return all
}

// expressions are all that alerts and dashboard ask for.
func expressions(t *testing.T) (all []string) {
	t.Helper()
	for _, r := range alerts(t) {
		all = append(all, r.Expr)
	}
	data, err := os.ReadFile("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all = append(all, filled(target.Expr))
		}
	}
	return all
}
