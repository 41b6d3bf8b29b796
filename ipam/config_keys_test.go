package ipam

import (
	"strings"
	"testing"
)

func TestKeysMatchWithoutCaseAndUnderscores(t *testing.T) {
	cfg := configHost{}.mustParse(t, `{
		"CNI_version": "1.0.0", "NAME": "blue",
		"IPAM": {
			"Range": "10.0.0.0/24", "rangeStart": "10.0.0.9", "RANGE_END": "10.0.0.20", "Exclude": ["10.0.0.9"],
			"ip_ranges": [{"RANGE": "fd00::/64", "RangeStart": "fd00::9", "gate_way": "fd00::1"}],
			"enableOverlappingRanges": false, "NetworkName": "tenant", "allowDotZero": true,
			"Kubernetes": {"KubeConfig": "/k"}, "dns": {"nameServers": ["10.0.0.53"]},
			"Addresses": [{"Address": "10.0.1.1/24"}]
		},
		"runtimeconfig": {"IPs": ["10.0.0.12"]}, "Args": {"CNI": {"IPS": ["10.0.0.13"]}}
	}`)
	wantEqual(t, "CNIVersion", cfg.CNIVersion, "1.0.0")
	wantEqual(t, "Name", cfg.Name, "blue")
	wantEqual(t, "ranges", prefixesOf(cfg.Ranges), "10.0.0.0/24 fd00::/64")
	wantEqual(t, "first", cfg.Ranges[0].First.String(), "10.0.0.9")
	wantEqual(t, "last", cfg.Ranges[0].Last.String(), "10.0.0.20")
	wantEqual(t, "second first", cfg.Ranges[1].First.String(), "fd00::9")
	wantEqual(t, "second gateway", cfg.Ranges[1].Gateway.String(), "fd00::1")
	wantEqual(t, "Overlap", cfg.Overlap, false)
	wantEqual(t, "AllowDotZero", cfg.AllowDotZero, true)
	wantEqual(t, "NetworkName", cfg.NetworkName, "tenant")
	wantEqual(t, "Kubeconfig", cfg.Kubeconfig, "/k")
	wantEqual(t, "nameservers", strings.Join(cfg.DNS.Nameservers, " "), "10.0.0.53")
	wantEqual(t, "fixed", len(cfg.Fixed), 1)
	wantEqual(t, "requested", len(cfg.Requested), 2)
	wantEqual(t, "warnings", cfg.Warnings, nil)
}

func TestOneKeyInSeveralSpellings(t *testing.T) {
	tests := []struct {
		name, conf, counts string
		words              []string
	}{
		{"documented spelling first", `"network_name": "a", "networkName": "b"`, "a", []string{`"network_name"`, `"networkName"`, `"network_name" counts`}},
		{"documented spelling last", `"networkName": "b", "network_name": "a"`, "a", []string{`"network_name" counts`}},
		{"documented spelling in the middle", `"networkName": "b", "network_name": "a", "NETWORK_NAME": "c"`, "a", []string{`"network_name" counts`}},
		{"two other spellings", `"networkName": "b", "NetworkName": "c"`, "c", []string{`"NetworkName" counts`}},
		{"the same spelling twice", `"network_name": "a", "network_name": "b"`, "b", []string{"network_name is written twice"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", `+test.conf)
			wantEqual(t, "NetworkName", cfg.NetworkName, test.counts)
			wantWords(t, strings.Join(cfg.Warnings, "\n"), append(test.words, "written twice", "remove the other")...)
		})
	}
}

func TestUnknownKeysAreWarnings(t *testing.T) {
	tests := []struct{ name, conf, want string }{
		{"a slip", `"rnage": "x"`, `unknown key "rnage" is ignored; did you mean "range"?`},
		{"a letter missing", `"gatway": "x"`, `unknown key "gatway" is ignored; did you mean "gateway"?`},
		{"a letter too many", `"excludes": []`, `unknown key "excludes" is ignored; did you mean "exclude"?`},
		{"nothing like it", `"subnet": "x"`, `unknown key "subnet" is ignored; remove it`},
		{"in an entry", `"ipRanges": [{"range": "10.1.0.0/24", "range_strat": "x"}]`, `unknown key "ipRanges[0].range_strat" is ignored; did you mean "range_start"?`},
		{"in addresses", `"addresses": [{"address": "10.1.0.1", "vlan": 5}]`, `unknown key "addresses[0].vlan" is ignored; remove it`},
		{"in kubernetes", `"kubernetes": {"kubeconfg": "x"}`, `unknown key "kubernetes.kubeconfg" is ignored; did you mean "kubeconfig"?`},
		{"in dns", `"dns": {"nameserver": "x"}`, `unknown key "dns.nameserver" is ignored; did you mean "nameservers"?`},
		{"much too long for a slip", `"` + strings.Repeat("range_", 50) + `": "x"`, `unknown key "` + strings.Repeat("range_", 50)[:80] + `…" is ignored; remove it`},
		{"half of a short word is another word", `"tap": "x"`, `unknown key "tap" is ignored; remove it`},
		{"two short words are not alike", `"name": "x"`, `unknown key "name" is ignored; remove it`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", `+test.conf)
			wantEqual(t, "warnings", cfg.Warnings, []string{test.want})
		})
	}
}

func TestKeysOfOtherProgramsAreNoConcernOfOurs(t *testing.T) {
	cfg := configHost{env: inPod}.mustParse(t, `{"type": "bridge", "bridge": "br0", "ranges": 1, "capabilities": {"ips": true, "mac": true},
		"ipam": {"range": "10.0.0.0/24"},
		"runtimeConfig": {"mac": "00:11:22:33:44:55"}, "args": {"labels": [], "cni": {"mac": "x"}}}`)
	wantEqual(t, "warnings", cfg.Warnings, nil)
}

// No two keys of one place may be spellings of each other.
func TestKeysAreDistinct(t *testing.T) {
	for i := range configKeys {
		if k := findKey(configKeys[i].place, configKeys[i].name); k != &configKeys[i] {
			t.Errorf("%s is found as %s", configKeys[i].name, k.name)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"range", "range", 0}, {"rnage", "range", 1}, {"ab", "ba", 1}, {"abc", "ca", 3}, {"gatway", "gateway", 1}, {"kitten", "sitting", 3}} {
		if got := editDistance(test.a, test.b); got != test.want {
			t.Errorf("editDistance(%q, %q) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
