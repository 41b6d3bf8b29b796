package ipam

import (
	"errors"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

// configHost is a host in memory: files by path. The contents isDir, isDenied
// and isNoDir stand for what cannot be read.
type configHost struct {
	files map[string]string
	env   map[string]string
	args  string
}

const (
	isDir    = "\x00directory"
	isDenied = "\x00denied"
	isNoDir  = "\x00parent is a file"

	flatPath = "/etc/cni/net.d/whereabouts.d/whereabouts.conf"
)

// flatHost is a host whose flat file has this content.
func flatHost(content string) configHost {
	return configHost{files: map[string]string{flatPath: content}}
}

// parse reads a network configuration on the host. A text that starts with a
// brace is all of it, another one the keys of its ipam object.
func (h configHost) parse(conf string) (*Config, error) {
	if !strings.HasPrefix(conf, "{") {
		conf = `{"cniVersion": "1.0.0", "name": "net", "ipam": {` + conf + `}}`
	}
	return ParseConfig(Sources{
		Stdin:    []byte(conf),
		Args:     h.args,
		Getenv:   func(name string) string { return h.env[name] },
		ReadFile: h.read,
	})
}

func (h configHost) read(path string) ([]byte, error) {
	content, ok := h.files[path]
	switch {
	case !ok:
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOENT}
	case content == isDir:
		return nil, &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case content == isNoDir:
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	case content == isDenied:
		return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EACCES}
	}
	return []byte(content), nil
}

// mustParse is for configurations without any fault but, perhaps, warnings. The
// datastore is local unless the test says otherwise.
func (h configHost) mustParse(t *testing.T, conf string) *Config {
	t.Helper()
	cfg, err := h.parse(conf)
	if err != nil {
		t.Fatalf("ParseConfig(%s): %v", conf, err)
	}
	if err := errors.Join(cfg.Invalid...); err != nil {
		t.Fatalf("ParseConfig(%s): invalid: %v", conf, err)
	}
	return cfg
}

// inPod is a host on which the default datastore works without a kubeconfig.
var inPod = map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}

func wantWords(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q does not say %q", text, word)
		}
	}
}

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func mustAddrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixesOf(ranges []Range) string {
	var out []string
	for _, r := range ranges {
		out = append(out, r.Prefix.String())
	}
	return strings.Join(out, " ")
}

func TestEveryKeyIsRead(t *testing.T) {
	h := configHost{env: map[string]string{"NODENAME": "node1"}}
	cfg := h.mustParse(t, `{
		"cniVersion": "1.1.0", "name": "blue", "type": "macvlan", "master": "eth0",
		"ipam": {
			"type": "whereabouts",
			"range": "192.168.2.225/28", "range_start": "192.168.2.226", "range_end": "192.168.2.230",
			"exclude": ["192.168.2.229/32"], "gateway": "192.168.2.238", "allow_dot_zero": true,
			"ipRanges": [{"range": "fd00::/64", "range_start": "fd00::10", "range_end": "fd00::20", "exclude": ["fd00::11"], "gateway": "fd00::1"}],
			"routes": [{"dst": "10.0.0.0/8", "gw": "192.168.2.238"}, {"dst": "fd01::/64"}],
			"dns": {"nameservers": ["10.0.0.53"], "domain": "example.com", "search": ["a.example.com"], "options": ["ndots:2"]},
			"addresses": [{"address": "192.168.9.5/24", "gateway": "192.168.9.1"}, {"address": "fd09::5"}],
			"enable_overlapping_ranges": false, "network_name": "tenant", "node_slice_size": "",
			"datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/k", "k8s_api_root": "https://x"},
			"log_file": "/var/log/w.log", "log_level": "DEBUG",
			"reconciler_cron_expression": "30 4 * * *",
			"sleep_for_race": 0, "leader_lease_duration": 1500, "leader_renew_deadline": 1000, "leader_retry_period": 500
		},
		"prevResult": {"ips": []}
	}`)
	wantEqual(t, "CNIVersion", cfg.CNIVersion, "1.1.0")
	wantEqual(t, "Name", cfg.Name, "blue")
	wantEqual(t, "NetworkName", cfg.NetworkName, "tenant")
	wantEqual(t, "ranges", prefixesOf(cfg.Ranges), "192.168.2.224/28 fd00::/64")
	wantEqual(t, "first", cfg.Ranges[0].First.String(), "192.168.2.226")
	wantEqual(t, "last", cfg.Ranges[0].Last.String(), "192.168.2.230")
	wantEqual(t, "second first", cfg.Ranges[1].First.String(), "fd00::10")
	wantEqual(t, "second last", cfg.Ranges[1].Last.String(), "fd00::20")
	wantEqual(t, "second gateway", cfg.Ranges[1].Gateway.String(), "fd00::1")
	wantEqual(t, "gateway of the first", cfg.Ranges[0].Gateway, cfg.Gateway)
	wantEqual(t, "dot zero of the second", cfg.Ranges[1].AllowDotZero, true)
	wantEqual(t, "Gateway", cfg.Gateway.String(), "192.168.2.238")
	wantEqual(t, "AllowDotZero", cfg.AllowDotZero, true)
	wantEqual(t, "Fixed", cfg.Fixed, []FixedAddress{
		{Address: netip.MustParsePrefix("192.168.9.5/24"), Gateway: netip.MustParseAddr("192.168.9.1")},
		{Address: netip.MustParsePrefix("fd09::5/128")},
	})
	wantEqual(t, "routes", len(cfg.Routes), 2)
	wantEqual(t, "route", cfg.Routes[0].Dst.String()+" "+cfg.Routes[0].GW.String(), "10.0.0.0/8 192.168.2.238")
	wantEqual(t, "DNS", cfg.DNS, types.DNS{
		Nameservers: []string{"10.0.0.53"}, Domain: "example.com",
		Search: []string{"a.example.com"}, Options: []string{"ndots:2"},
	})
	wantEqual(t, "Overlap", cfg.Overlap, false)
	wantEqual(t, "Datastore", cfg.Datastore, DatastoreKubernetes)
	wantEqual(t, "Kubeconfig", cfg.Kubeconfig, "/etc/k")
	wantEqual(t, "LogFile", cfg.LogFile, "/var/log/w.log")
	wantEqual(t, "LogLevel", cfg.LogLevel, "debug")
	wantEqual(t, "CronExpression", cfg.CronExpression, "30 4 * * *")
	wantEqual(t, "Node", cfg.Node, "node1")
	wantEqual(t, "PrevResult", string(cfg.PrevResult), `{"ips": []}`)
	wantEqual(t, "Warnings", cfg.Warnings, nil)
}

func TestDefaults(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `{"ipam": {"range": "10.0.0.0/24"}}`)
	wantEqual(t, "CNIVersion", cfg.CNIVersion, "0.1.0")
	wantEqual(t, "Overlap", cfg.Overlap, true)
	wantEqual(t, "AllowDotZero", cfg.AllowDotZero, false)
	wantEqual(t, "Datastore", cfg.Datastore, DatastoreKubernetes)
	wantEqual(t, "Kubeconfig", cfg.Kubeconfig, "")
	wantEqual(t, "LocalPath", cfg.LocalPath, "/var/lib/cni/whereabouts/whereabouts.db")
	wantEqual(t, "RunDirectory", cfg.RunDirectory, "/run/whereabouts")
	wantEqual(t, "StateDirectory", cfg.StateDirectory, "/var/lib/cni/whereabouts")
	wantEqual(t, "Sliced", cfg.Sliced(), false)
	wantEqual(t, "FlatFile", cfg.FlatFile, "")
	wantEqual(t, "Pod", cfg.Pod, PodArgs{})
	wantEqual(t, "Gateway", cfg.Gateway, netip.Addr{})
	if cfg.PrevResult != nil || cfg.ValidAttachments != nil || cfg.ArgsErr != nil || cfg.Warnings != nil {
		t.Errorf("%s %v %v %q, want nothing of it", cfg.PrevResult, cfg.ValidAttachments, cfg.ArgsErr, cfg.Warnings)
	}
}

func TestSourcesNeedNeitherEnvironmentNorFiles(t *testing.T) {
	cfg, err := ParseConfig(Sources{Stdin: []byte(`{"ipam": {"range": "10.0.0.0/24", "datastore": "local"}}`)})
	if err != nil || cfg.Invalid != nil {
		t.Fatal(err, cfg.Invalid)
	}
	wantEqual(t, "Node", cfg.Node, "")
}

// Every gateway and fixed address is kept out of every range.
func TestGatewaysAndFixedAddressesAreReserved(t *testing.T) {
	h := configHost{env: inPod, args: "GATEWAY=10.0.0.3"}
	cfg := h.mustParse(t, `
		"range": "10.0.0.0/28", "gateway": "10.0.0.1",
		"ipRanges": [{"range": "10.0.0.0/29", "gateway": "10.0.0.2"}],
		"addresses": [{"address": "10.0.0.4/28", "gateway": "10.0.0.5"}]`)
	for _, r := range cfg.Ranges {
		free := Free(r, func(netip.Addr) bool { return false }, 1)
		wantEqual(t, "first free address of "+r.String(), free, mustAddrs("10.0.0.6"))
	}
}

func TestTopLevelGatewayIsNotThatOfOtherRanges(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `"gateway": "10.0.0.1", "ipRanges": [{"range": "10.0.0.0/24"}]`)
	wantEqual(t, "Gateway", cfg.Gateway, netip.MustParseAddr("10.0.0.1"))
	wantEqual(t, "gateway of the entry", cfg.Ranges[0].Gateway, netip.Addr{})
}

func TestGatewayOfAnotherFamilyIsLeftOutOfAFixedAddress(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `"addresses": [{"address": "10.0.0.4/24", "gateway": "fd00::1"}]`)
	wantEqual(t, "Fixed", cfg.Fixed, []FixedAddress{{Address: netip.MustParsePrefix("10.0.0.4/24")}})
	wantWords(t, strings.Join(cfg.Warnings, "\n"), "addresses[0].gateway", "fd00::1", "another family")
}

func TestLenientAddresses(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `
		"range": " 010.000.0.0/24 ", "gateway": " 010.0.0.1 ", "addresses": [{"address": " 010.0.1.5/24"}]`)
	wantEqual(t, "range", prefixesOf(cfg.Ranges), "10.0.0.0/24")
	wantEqual(t, "gateway", cfg.Gateway.String(), "10.0.0.1")
	wantEqual(t, "fixed", cfg.Fixed[0].Address.String(), "10.0.1.5/24")
}

func TestSliceSize(t *testing.T) {
	for written, want := range map[string]int{
		`"/26"`: 26, `"26"`: 26, `26`: 26, `" /26 "`: 26, `"/24"`: 24, `"/32"`: 32,
		`0`: 0, `"0"`: 0, `""`: 0, `null`: 0,
	} {
		cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "node_slice_size": `+written)
		wantEqual(t, "slice size of "+written, cfg.Ranges[0].SliceSize, want)
	}
}

func TestSliceMax(t *testing.T) {
	for written, want := range map[string]int{
		``: 1, `, "node_slice_max": null`: 1, `, "node_slice_max": 1`: 1, `, "node_slice_max": 7`: 7, `, "nodeSliceMax": 2`: 2,
	} {
		cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "node_slice_size": "26"`+written)
		wantEqual(t, "most slices of a node with "+written, cfg.SliceMax, want)
		wantEqual(t, "warnings with "+written, len(cfg.Warnings), 0)
	}
	cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "node_slice_max": 2`)
	wantEqual(t, "warnings", len(cfg.Warnings), 1)
	wantWords(t, cfg.Warnings[0], "node_slice_max", "node_slice_size is not set")
}

// What names no address can be told from what names it wrongly.
func TestNoSourceIsAnErrorOfItsOwn(t *testing.T) {
	for ipam, want := range map[string]bool{``: true, `"gateway": "10.0.0.1"`: true, `"range": "10.0.0.0"`: false, `"exclude": ["x"]`: true} {
		cfg, err := configHost{env: inPod}.parse(ipam)
		if err != nil || len(cfg.Invalid) != 1 {
			t.Fatalf("%s: error %v, invalid %v", ipam, err, cfg.Invalid)
		}
		if got := errors.Is(cfg.Invalid[0], ErrNoSource); got != want {
			t.Errorf("{%s}: ErrNoSource is %t, want %t: %v", ipam, got, want, cfg.Invalid[0])
		}
	}
}

func TestUnusedBoundsAreToldAbout(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `"range_start": "10.0.0.5", "exclude": ["nonsense"], "ipRanges": [{"range": "10.0.0.0/24"}]`)
	wantEqual(t, "warnings", len(cfg.Warnings), 2)
	wantWords(t, cfg.Warnings[0], "range_start", "ignored", "ipRanges")
	wantWords(t, cfg.Warnings[1], "exclude", "ignored", "ipRanges")
}

// What older versions tolerated stays a warning.
func TestOddBoundsAreWarnings(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "range_start": "10.0.0.50", "range_end": "10.0.0.9",
		"ipRanges": [{"range": "fd00::/64", "range_start": "10.0.0.1", "range_end": "x"}]`)
	wantEqual(t, "warnings", len(cfg.Warnings), 3)
	wantWords(t, cfg.Warnings[0], "range_end", "10.0.0.9")
	wantWords(t, cfg.Warnings[1], "ipRanges[0].range_end", "x")
	wantEqual(t, "last", cfg.Ranges[0].Last.String(), "10.0.0.254")
}

func TestPrevResultOfNullIsNone(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `{"ipam": {"range": "10.0.0.0/24"}, "prevResult": null}`)
	if cfg.PrevResult != nil {
		t.Errorf("PrevResult is %s", cfg.PrevResult)
	}
}
