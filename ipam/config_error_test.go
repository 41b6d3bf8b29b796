package ipam

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Addressing errors: key, what was found, what to do. They never stop
// ParseConfig, and the ranges that can be read are there.
func TestAddressingErrors(t *testing.T) {
	const good = `"range": "10.0.0.0/24"`
	tests := []struct {
		name, conf, args string
		words            []string
		ranges           string // that a release still finds
	}{
		{"nothing names an address", ``, "", []string{"ipam", "no range, ipRanges, addresses", `set "range"`}, ""},
		{"empty values name none", `"range": "", "ipRanges": [], "addresses": []`, "", []string{"no range"}, ""},
		{"range is no CIDR", `"range": "10.0.0.0"`, "", []string{"range: ", `"10.0.0.0"`, "10.0.0.0/24"}, ""},
		{"range is words", `"range": "dhcp"`, "", []string{"range: ", `"dhcp"`, "write it like"}, ""},
		{"first outside its own net", `"range": "10.1.0.1-10.0.0.9/24"`, "", []string{"range: ", "10.1.0.1", "outside its own net 10.0.0.0/24", "write"}, ""},
		{"entry without a range", good + `, "ipRanges": [{"gateway": "10.0.0.1"}]`, "", []string{"ipRanges[0].range", "missing", "CIDR"}, "10.0.0.0/24"},
		{"entry with a bad range", good + `, "ipRanges": [{"range": "10.1.0.0/24"}, {"range": "x/24"}]`, "", []string{"ipRanges[1].range", `"x"`, "write"}, "10.0.0.0/24 10.1.0.0/24"},
		{"bad exclude", good + `, "exclude": ["10.0.0.1", "10.0.0.300"]`, "", []string{"exclude[1]", `"10.0.0.300"`, "write"}, "10.0.0.0/24"},
		{"bad exclude of an entry", `"ipRanges": [{"range": "10.1.0.0/24", "exclude": ["10.1.0.9-10.1.0.2"]}]`, "", []string{"ipRanges[0].exclude[0]", `"10.1.0.9-10.1.0.2"`, "write"}, "10.1.0.0/24"},
		{"bad gateway", good + `, "gateway": "10.0.0"`, "", []string{"gateway: ", `"10.0.0"`, "write"}, "10.0.0.0/24"},
		{"bad gateway of an entry", `"ipRanges": [{"range": "10.1.0.0/24", "gateway": "10.0.0.1/24"}]`, "", []string{"ipRanges[0].gateway", `"10.0.0.1/24"`, "write"}, "10.1.0.0/24"},
		{"bad fixed address", good + `, "addresses": [{"address": "10.0.0.5/33"}]`, "", []string{"addresses[0].address", `"10.0.0.5/33"`, "write"}, "10.0.0.0/24"},
		{"missing fixed address", good + `, "addresses": [{"gateway": "10.0.0.1"}]`, "", []string{"addresses[0].address", "missing", "set it"}, "10.0.0.0/24"},
		{"bad gateway of a fixed address", good + `, "addresses": [{"address": "10.0.0.5", "gateway": "gw"}]`, "", []string{"addresses[0].gateway", `"gw"`, "write"}, "10.0.0.0/24"},
		{"slice size is words", good + `, "node_slice_size": "many"`, "", []string{"node_slice_size", `"many"`, `write one like "/26"`}, "10.0.0.0/24"},
		{"slice size is a fraction", good + `, "node_slice_size": 26.5`, "", []string{"node_slice_size", `"26.5"`, "write"}, "10.0.0.0/24"},
		{"slice size is negative", good + `, "node_slice_size": -1`, "", []string{"node_slice_size", `"-1"`, "write"}, "10.0.0.0/24"},
		{"slice size is shorter than the range", `"range": "192.168.2.0/24", "node_slice_size": "/22"`, "", []string{"node_slice_size", `"/22"`, "192.168.2.0/24", `use "/24" to "/32"`}, "192.168.2.0/24"},
		{"slice size is longer than an address", good + `, "node_slice_size": "/33"`, "", []string{"node_slice_size", `"/33"`, `use "/24" to "/32"`}, "10.0.0.0/24"},
		{"slice size fits one range only", good + `, "ipRanges": [{"range": "fd00::/64"}], "node_slice_size": "26"`, "", []string{"node_slice_size", "fd00::/64", "no size suits all ranges", "of their own"}, "10.0.0.0/24 fd00::/64"},
		{"slice size fits the larger range only", good + `, "ipRanges": [{"range": "10.1.0.0/27"}], "node_slice_size": "26"`, "", []string{"node_slice_size", "10.1.0.0/27", `use "/27" to "/32"`}, "10.0.0.0/24 10.1.0.0/27"},
		{"slice size for both families is too short", `"range": "10.0.0.0/20", "ipRanges": [{"range": "fd00::/28"}], "node_slice_size": "26"`, "", []string{"node_slice_size", "fd00::/28", `use "/28" to "/32"`}, "10.0.0.0/20 fd00::/28"},
		{"slice size of its own does not fit", good + `, "ipRanges": [{"range": "fd00::/64", "node_slice_size": "/26"}], "node_slice_size": "26"`, "", []string{"ipRanges[0].node_slice_size", `"/26"`, "fd00::/64", `use "/64" to "/128"`}, "10.0.0.0/24 fd00::/64"},
		{"no slices for a node", good + `, "node_slice_size": "26", "node_slice_max": 0`, "", []string{"node_slice_max", "0", "write 1 or more"}, "10.0.0.0/24"},
		{"fewer slices than none for a node", good + `, "node_slice_max": -3`, "", []string{"node_slice_max", "-3", "write 1 or more"}, "10.0.0.0/24"},
		{"bad route", good + `, "routes": [{"dst": "10.0.0.0/8"}, {"dst": "10.0.0.0"}]`, "", []string{"routes[1]", "10.0.0.0", "write a route like"}, "10.0.0.0/24"},
		{"bad gateway of a route", good + `, "routes": [{"dst": "10.0.0.0/8", "gw": "x"}]`, "", []string{"routes[0]", "x", "write a route like"}, "10.0.0.0/24"},
		{"route without a destination", good + `, "routes": [{"gw": "10.0.0.1"}]`, "", []string{"routes[0]", "dst", "write a route like"}, "10.0.0.0/24"},
		{"bad address in CNI_ARGS", good, "IP=10.0.0.5,10.0.0", []string{"CNI_ARGS IP", `"10.0.0"`, "write"}, "10.0.0.0/24"},
		{"bad gateway in CNI_ARGS", good, "GATEWAY=10.0.0.1/24", []string{"CNI_ARGS GATEWAY", `"10.0.0.1/24"`, "write"}, "10.0.0.0/24"},
		{"bad runtimeConfig.ips", `{"ipam": {` + good + `}, "runtimeConfig": {"ips": ["10.0.0.5", "five"]}}`, "", []string{"runtimeConfig.ips", `"five"`, "write"}, "10.0.0.0/24"},
		{"bad args.cni.ips", `{"ipam": {` + good + `}, "args": {"cni": {"ips": ["10.0.0.5/40"]}}}`, "", []string{"args.cni.ips", `"10.0.0.5/40"`, "write"}, "10.0.0.0/24"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := configHost{env: inPod, args: test.args}.parse(test.conf)
			if err != nil {
				t.Fatalf("stops DEL: %v", err)
			}
			kind := ErrInvalid
			if test.args != "" {
				kind = ErrArgs
			}
			if len(cfg.Invalid) != 1 || !errors.Is(cfg.Invalid[0], kind) {
				t.Fatalf("Invalid is %q, want one error that wraps %q", cfg.Invalid, kind)
			}
			wantWords(t, cfg.Invalid[0].Error(), test.words...)
			wantEqual(t, "ranges", prefixesOf(cfg.Ranges), test.ranges)
		})
	}
}

func TestAllAddressingErrorsAreCollected(t *testing.T) {
	cfg, err := configHost{env: inPod}.parse(`"range": "x", "gateway": "y", "routes": 1, "ipRanges": [{"range": "10.0.0.0/24", "exclude": "10.0.0.1"}]`)
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "number of errors", len(cfg.Invalid), 4)
	wantWords(t, errors.Join(cfg.Invalid...).Error(), "range: ", "gateway: ", "routes: ", "ipRanges[0].exclude: ")
	wantEqual(t, "ranges", prefixesOf(cfg.Ranges), "10.0.0.0/24")
}

func TestWrongTypes(t *testing.T) {
	tests := []struct {
		conf  string
		vital bool // stops DEL too
		words []string
	}{
		{`"range": 10`, false, []string{"range: ", "expected a string in double quotes", "found a number: 10"}},
		{`"range_start": true`, false, []string{"range_start: ", "a string", "found a boolean: true"}},
		{`"exclude": "10.0.0.0/30"`, false, []string{"exclude: ", "a list of strings", `found a string: "10.0.0.0/30"`}},
		{`"exclude": ["10.0.0.0/30", 5]`, false, []string{"exclude[1]: ", "a list of strings", "found a number: 5"}},
		{`"exclude": [null]`, false, []string{"exclude[0]: ", "found null"}},
		{`"ipRanges": {"range": "10.0.0.0/24"}`, false, []string{"ipRanges: ", "a list of objects", "found an object"}},
		{`"ipRanges": ["10.0.0.0/24"]`, false, []string{"ipRanges[0]: ", "a list of objects", `found a string: "10.0.0.0/24"`}},
		{`"ipRanges": [{"range": "10.0.0.0/24", "gateway": 1}]`, false, []string{"ipRanges[0].gateway: ", "a string", "found a number: 1"}},
		{`"addresses": [{"address": ["10.0.0.1"]}]`, false, []string{"addresses[0].address: ", "a string", "found a list"}},
		{`"allow_dot_zero": "yes"`, false, []string{"allow_dot_zero: ", "true or false without quotes", `found a string: "yes"`}},
		{`"enable_overlapping_ranges": "false"`, false, []string{"enable_overlapping_ranges: ", "without quotes", `"false"`}},
		{`"node_slice_max": "2"`, false, []string{"node_slice_max: ", "a whole number without quotes", `found a string: "2"`}},
		{`"node_slice_size": true`, false, []string{"node_slice_size: ", `a prefix length like "/26"`, "found a boolean: true"}},
		{`"sleep_for_race": "5"`, false, []string{"sleep_for_race: ", "a whole number without quotes", `found a string: "5"`}},
		{`"leader_lease_duration": 1.5`, false, []string{"leader_lease_duration: ", "a whole number", "1.5"}},
		{`"leader_renew_deadline": true`, false, []string{"leader_renew_deadline: ", "a whole number", "true"}},
		{`"leader_retry_period": [1]`, false, []string{"leader_retry_period: ", "a whole number", "a list"}},
		{`"log_level": 3`, false, []string{"log_level: ", "a string", "found a number: 3"}},
		{`"log_file": 3`, false, []string{"log_file: ", "a string", "found a number: 3"}},
		{`"dns": "10.0.0.53"`, false, []string{"dns: ", "an object in braces", `found a string: "10.0.0.53"`}},
		{`"dns": {"search": "a"}`, false, []string{"dns.search: ", "a list of strings", `found a string: "a"`}},
		{`"routes": "10.0.0.0/8"`, false, []string{"routes: ", "a list of objects", `found a string`}},
		{`"reconciler_cron_expression": 5`, false, []string{"reconciler_cron_expression: ", "a string", "5"}},
		{`"network_name": 5`, true, []string{"network_name: ", "a string", "found a number: 5"}},
		{`"datastore": 5`, true, []string{"datastore: ", "a string", "found a number: 5"}},
		{`"kubernetes": "/etc/k"`, true, []string{"kubernetes: ", "an object", `found a string: "/etc/k"`}},
		{`"kubernetes": {"kubeconfig": 1}`, true, []string{"kubernetes.kubeconfig: ", "a string", "found a number: 1"}},
		{`"etcd_host": ["a"]`, true, []string{"etcd_host: ", "a string", "found a list"}},
		{`"local_path": 1`, true, []string{"local_path: ", "a string", "found a number: 1"}},
		{`"configuration_path": 1`, true, []string{"configuration_path: ", "a string", "found a number: 1"}},
		{`{"ipam": {}, "runtimeConfig": []}`, false, nil},
		{`{"ipam": {}, "runtimeConfig": 5}`, false, []string{"runtimeConfig: ", "an object", "found a number: 5"}},
		{`{"ipam": {}, "runtimeConfig": {"ips": 5}}`, false, []string{"runtimeConfig.ips: ", "a list of addresses", "found a number: 5"}},
		{`{"ipam": {}, "args": {"cni": {"ips": [5]}}}`, false, []string{"args.cni.ips[0]: ", "a list of addresses", "found a number: 5"}},
		{`{"ipam": {}, "name": 5}`, true, []string{"name: ", "a string", "found a number: 5"}},
	}
	for _, test := range tests {
		t.Run(test.conf, func(t *testing.T) {
			cfg, err := configHost{env: inPod}.parse(test.conf)
			if (err != nil) != test.vital {
				t.Fatalf("ParseConfig: %v; want it to stop: %v", err, test.vital)
			}
			if err == nil {
				err = errors.Join(cfg.Invalid...)
			}
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%v does not wrap ErrInvalid", err)
			}
			wantWords(t, err.Error(), test.words...)
		})
	}
}

func TestWhatIsNoPluginConfiguration(t *testing.T) {
	tests := []struct {
		conf  string
		words []string
	}{
		{`{}`, []string{"ipam: ", "missing", "add"}},
		{`{"ipam": null}`, []string{"ipam: ", "missing", "add"}},
		{`{"ipam": "whereabouts"}`, []string{"ipam: ", "an object", `found a string: "whereabouts"`}},
		{`{"ipam": [1]}`, []string{"ipam: ", "an object", "found a list"}},
		{`[]`, []string{"it is a list", "must be an object"}},
		{`"x"`, []string{"it is a string", "must be an object"}},
	}
	for _, test := range tests {
		t.Run(test.conf, func(t *testing.T) {
			_, err := ParseConfig(Sources{Stdin: []byte(test.conf)})
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v does not wrap ErrInvalid", err)
			}
			wantWords(t, err.Error(), test.words...)
		})
	}
}

// A value that comes from the flat file is said to.
func TestErrorsNameTheFlatFile(t *testing.T) {
	for _, flat := range []string{
		`{"range": "x"}`, `{"range": 5}`, `{"range": "10.0.0.0/24", "exclude": ["x"]}`, `{"gateway": "x"}`,
		`{"node_slice_size": "x"}`, `{"addresses": [{"address": "x"}]}`, `{"routes": [{"dst": "x"}]}`, `{"datastore": "x"}`,
	} {
		cfg, err := configHost{env: inPod, files: map[string]string{flatPath: flat}}.parse(`"ipRanges": [{"range": "10.1.0.0/24"}]`)
		if err == nil {
			err = errors.Join(cfg.Invalid...)
		}
		if err == nil || !strings.Contains(err.Error(), flatPath) {
			t.Errorf("flat file %s: %v does not name %s", flat, err, flatPath)
		}
	}
}

// A range and its excludes may come from different sources.
func TestErrorNamesTheSourceOfTheExclude(t *testing.T) {
	cfg, err := flatHost(`{"exclude": ["x"], "range": "10.9.0.0/24"}`).with(inPod).parse(`"range": "10.0.0.0/24"`)
	if err != nil || len(cfg.Invalid) != 1 {
		t.Fatal(err, cfg.Invalid)
	}
	wantWords(t, cfg.Invalid[0].Error(), "exclude[0]", "(in "+flatPath+")")

	cfg, err = flatHost(`{"range": "10.9.0.0/24"}`).with(inPod).parse(`"exclude": ["x"]`)
	if err != nil || len(cfg.Invalid) != 1 {
		t.Fatal(err, cfg.Invalid)
	}
	if strings.Contains(cfg.Invalid[0].Error(), flatPath) {
		t.Errorf("%v names the flat file for an exclude of the network configuration", cfg.Invalid[0])
	}
}

// A value of the wrong type is one mistake, and taken for absent after that.
func TestAWrongTypeIsOneError(t *testing.T) {
	for _, conf := range []string{`"range": 5`, `"range": "10.0.0.0/24", "exclude": "10.0.0.1"`, `"ipRanges": 1`, `"addresses": [1]`} {
		cfg, err := configHost{env: inPod}.parse(conf)
		if err != nil || len(cfg.Invalid) != 1 {
			t.Errorf("%s: %v, %v", conf, err, cfg.Invalid)
		}
	}
}

// No message holds a password, whatever is wrong with or around it.
func TestSecretsAreNeverShown(t *testing.T) {
	const secret = "hunter2"
	for _, conf := range []string{
		`"etcd_password": "hunter2"`,
		`"etcd_password": ["hunter2"]`,
		`"etcd_password": {"a": "hunter2"}`,
		`"etcdPassword": "hunter2", "ETCD_PASSWORD": "hunter2"`,
		`"etcd_pasword": "hunter2"`,
		`"kubernetes": {"etcd_password": "hunter2"}`,
		`"range": {"etcd_password": "hunter2"}, "exclude": [{"etcd_password": "hunter2"}]`,
		`"routes": {"etcd_password": "hunter2"}`,
		`"etcd_host": "http://root:hunter2@etcd:2379", "datastore": "etcd", "kubernetes": {"kubeconfig": "/k"}`,
		`"etcd_password": "hunter2", "datastore": "etcd"`,
		`"etcd_password": "hunter2", "datastore": "nonsense"`,
		`{"ipam": {"etcd_password": "hunter2" oops`,
		`{"ipam": {"etcd_password": "hunter2`,
		`{"ipam": {"etcd_password": hunter2}}`,
		`{"ipam": [{"etcd_password": "hunter2"}]}`,
	} {
		for _, h := range []configHost{{}, {env: inPod}, flatHost(strings.TrimSuffix(`{`+conf, "}") + `}`)} {
			stdin := conf
			if h.files != nil {
				stdin = `"range": "10.0.0.0/24"`
			}
			cfg, err := h.parse(stdin)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if cfg != nil {
				text += fmt.Sprint(cfg.Invalid) + strings.Join(cfg.Warnings, "\n")
			}
			if strings.Contains(text, secret) {
				t.Errorf("%s: %s", conf, text)
			}
		}
	}
}

// A host may be a URL with a password in it.
func TestSecretsOfTheWrongType(t *testing.T) {
	for _, key := range []string{"etcd_password", "etcd_host"} {
		_, err := configHost{}.parse(`"datastore": "etcd", "` + key + `": 5551234`)
		if !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
		wantWords(t, err.Error(), key+": ", "expected a string", "found a number")
		if strings.Contains(err.Error(), "5551234") {
			t.Errorf("%v shows the value", err)
		}
	}
}

func TestLongValuesAreCutInMessages(t *testing.T) {
	cfg, err := configHost{env: inPod}.parse(`"range": "10.0.0.0/24", "log_level": "` + strings.Repeat("x", 5000) + `"`)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(cfg.Warnings[0]); n > 300 {
		t.Errorf("a warning of %d bytes", n)
	}
}
