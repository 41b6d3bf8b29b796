package ipam

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestInlineWinsFieldByField(t *testing.T) {
	const flat = `{
		"range": "10.9.0.0/24", "range_start": "10.9.0.5", "exclude": ["10.9.0.6"], "gateway": "10.9.0.1",
		"network_name": "flat", "enable_overlapping_ranges": false, "allow_dot_zero": true, "log_level": "debug",
		"dns": {"domain": "flat.example.com", "nameservers": ["10.9.0.53"], "search": ["flat"]},
		"kubernetes": {"kubeconfig": "/flat"}, "node_slice_size": 26,
		"ipRanges": [{"range": "10.8.0.0/24"}, {"range": "10.7.0.0/24"}]
	}`
	tests := []struct {
		name, conf string
		want       string
	}{
		{"the flat file fills what is not there", ``, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/flat|26"},
		{"what is there wins", `"range": "10.1.0.0/24", "range_start": "10.1.0.9", "gateway": "10.1.0.1", "network_name": "inline", "log_level": "error"`, "10.1.0.0/24 10.8.0.0/24 10.7.0.0/24|10.1.0.9|10.1.0.1|inline|false|true|error|flat.example.com|10.9.0.53|/flat|26"},
		{"a written true or false wins", `"enable_overlapping_ranges": true, "allow_dot_zero": false`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|true|false|debug|flat.example.com|10.9.0.53|/flat|26"},
		{"a written zero wins", `"node_slice_size": 0`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/flat|0"},
		{"empty values do not win", `"range": "", "network_name": "", "exclude": [], "ipRanges": [ ], "dns": {}, "kubernetes": null, "gateway": null, "node_slice_size": ""`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/flat|26"},
		{"empty values inside objects do not win", `"kubernetes": {"kubeconfig": ""}, "dns": {"domain": "", "nameservers": []}`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/flat|26"},
		{"dns is merged key by key", `"dns": {"domain": "inline.example.com"}`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|inline.example.com|10.9.0.53|/flat|26"},
		{"kubernetes is merged key by key", `"kubernetes": {"k8s_api_root": "x"}`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/flat|26"},
		{"kubernetes inline wins", `"kubernetes": {"kubeconfig": "/inline"}`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.9.0.53|/inline|26"},
		{"a list is taken whole", `"ipRanges": [{"range": "10.2.0.0/24"}], "dns": {"nameservers": ["10.1.0.53"]}`, "10.9.0.0/24 10.2.0.0/24|10.9.0.5|10.9.0.1|flat|false|true|debug|flat.example.com|10.1.0.53|/flat|26"},
		{"spellings are one key across both", `"networkName": "inline", "RangeStart": "10.9.0.7"`, "10.9.0.0/24 10.8.0.0/24 10.7.0.0/24|10.9.0.7|10.9.0.1|inline|false|true|debug|flat.example.com|10.9.0.53|/flat|26"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := flatHost(flat).mustParse(t, test.conf)
			got, _ := json.Marshal([]any{
				cfg.Ranges[0].First, cfg.Gateway, cfg.NetworkName, cfg.Overlap, cfg.AllowDotZero, cfg.LogLevel,
				cfg.DNS.Domain, strings.Join(cfg.DNS.Nameservers, " "), cfg.Kubeconfig, cfg.Ranges[0].SliceSize,
			})
			line := strings.NewReplacer(`"`, "", "[", "", "]", "", ",", "|").Replace(string(got))
			wantEqual(t, "configuration", prefixesOf(cfg.Ranges)+"|"+line, test.want)
		})
	}
}

func TestExcludeOfTheFlatFileHoldsForARangeInline(t *testing.T) {
	cfg := flatHost(`{"exclude": ["10.0.0.1/32"]}`).with(inPod).mustParse(t, `"range": "10.0.0.0/24", "exclude": []`)
	wantEqual(t, "10.0.0.1 can be handed out", cfg.Ranges[0].Eligible(mustAddrs("10.0.0.1")[0]), false)
	wantEqual(t, "10.0.0.2 can be handed out", cfg.Ranges[0].Eligible(mustAddrs("10.0.0.2")[0]), true)
}

// A value inline hides one of the flat file, also a broken one.
func TestBrokenValueOfTheFlatFileIsHidden(t *testing.T) {
	cfg := flatHost(`{"range": 5, "network_name": [1]}`).with(inPod).mustParse(t, `"range": "10.0.0.0/24", "network_name": "n"`)
	wantEqual(t, "range", prefixesOf(cfg.Ranges), "10.0.0.0/24")
}

// Merging with an empty side changes nothing, and merging a side with itself
// neither.
func FuzzMergeConfig(f *testing.F) {
	f.Add(`{"range": "10.0.0.0/24", "dns": {"domain": "x"}}`, `{"range": "", "dns": {"domain": "y", "search": ["a"]}, "exclude": []}`)
	f.Add(`{"kubernetes": {"kubeconfig": null}}`, `{"kubernetes": {"kubeconfig": "/k"}}`)
	f.Add(`{"dns": 1}`, `{"dns": {}}`)
	f.Fuzz(func(t *testing.T, inline, flat string) {
		a, b, none := fuzzSection(inline), fuzzSection(flat), fuzzSection("{}")
		wantEqual(t, "a over nothing", flatten(mergeConfig(a, none)), flatten(a))
		wantEqual(t, "nothing over b", flatten(mergeConfig(none, b)), flatten(b))
		wantEqual(t, "a over a", flatten(mergeConfig(a, a)), flatten(a))
		merged := flatten(mergeConfig(a, b))
		for label, raw := range flatten(a) {
			if merged[label] != raw {
				t.Errorf("%s over %s: %s is %s", inline, flat, label, merged[label])
			}
		}
		for label := range merged {
			if flatten(a)[label] == "" && flatten(b)[label] == "" {
				t.Errorf("%s over %s: %s comes from nowhere", inline, flat, label)
			}
		}
	})
}

func fuzzSection(text string) configSection {
	if CheckJSON([]byte(text), "") != nil {
		text = "{}"
	}
	p := &configParser{cfg: &Config{}}
	return p.section(inIPAM, "", "", json.RawMessage(text))
}

// flatten lists what a section says, by label; the objects in it by their keys.
func flatten(s configSection) map[string]string {
	out := map[string]string{}
	for _, v := range s.values {
		if v.object != nil {
			for label, raw := range flatten(*v.object) {
				out[label] = raw
			}
		} else if !jsonEmpty(v.raw) {
			out[v.label] = string(v.raw)
		}
	}
	return out
}
