package ipam

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// ParseConfig never panics, answers the same for the same, never shows the
// password of the flat file, and answers errors of the kinds it documents.
func FuzzParseConfig(f *testing.F) {
	for _, seed := range []struct{ stdin, args string }{
		{`{"name": "n", "ipam": {"range": "10.0.0.0/24", "exclude": ["10.0.0.0/30"], "gateway": "10.0.0.1"}}`, "IP=10.0.0.5"},
		{`{"ipam": {"ipRanges": [{"range": "fd00::/64", "range_start": "fd00::5"}, {"gateway": "x"}], "node_slice_size": "/80"}}`, "GATEWAY=fd00::1"},
		{`{"ipam": {"addresses": [{"address": "10.0.0.1/24"}], "routes": [{"dst": "0.0.0.0/0"}, null], "dns": {"search": []}}}`, "A;B=C"},
		{`{"ipam": {"datastore": "etcd", "etcdHost": "e", "etcd_host": "", "log_file": "/x"}, "cni.dev/attachments": [{"containerID": "c"}]}`, ""},
		{`{"ipam": {"rangeStart": 5, "range_start": [], "sleep_for_race": 1e9}, "runtimeConfig": {"ips": "1"}, "args": {"cni": 1}}`, ";="},
	} {
		f.Add(seed.stdin, seed.args)
	}
	const secret = "correct-horse-battery"
	h := configHost{files: map[string]string{flatPath: `{"etcd_password": "` + secret + `", "range": "10.9.0.0/24"}`}}
	f.Fuzz(func(t *testing.T, stdin, args string) {
		if strings.Contains(stdin, secret) || strings.Contains(args, secret) {
			return
		}
		sources := Sources{Stdin: []byte(stdin), Args: args, ReadFile: h.read}
		cfg, err := ParseConfig(sources)
		again, errAgain := ParseConfig(sources)
		if a, b := releaseView(cfg), releaseView(again); a != b || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("%s %v, then %s %v", a, err, b, errAgain)
		}
		if err != nil && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrDecode) {
			t.Errorf("%v is of no documented kind", err)
		}
		if text := fmt.Sprint(err) + releaseView(cfg); strings.Contains(text, secret) {
			t.Errorf("%s shows the password", text)
		}
		if cfg == nil {
			return
		}
		for _, err := range cfg.Invalid {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v does not wrap ErrInvalid", err)
			}
		}
		for _, r := range cfg.Ranges {
			if !r.Prefix.IsValid() || r.Prefix != r.Prefix.Masked() {
				t.Errorf("range %s has no pool", r.Prefix)
			}
		}
	})
}

// releaseView is what DEL and GC go by, and every message.
func releaseView(cfg *Config) string {
	if cfg == nil {
		return ""
	}
	return fmt.Sprint(cfg.Name, cfg.NetworkName, prefixesOf(cfg.Ranges), sliceSizesOf(cfg.Ranges), cfg.Datastore, cfg.Kubeconfig,
		cfg.Node, cfg.Pod, cfg.ValidAttachments != nil, cfg.Fixed, cfg.Requested, cfg.Invalid, cfg.ArgsErr, cfg.Warnings)
}
