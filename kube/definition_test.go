package kube

import (
	"net/netip"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

const someFlat = `{"datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}}`

func poolOf(network, node, cidr string) ipam.PoolID {
	return ipam.PoolID{Network: network, Node: node, Range: netip.MustParsePrefix(cidr)}
}

func definitionsOf(flat []byte, configs ...string) *definitions {
	var all []*definition
	for _, config := range configs {
		all = append(all, readDefinition(config, flat))
	}
	d := &definitions{}
	d.set(all)
	return d
}

func TestWhatDefinitionsSayAboutPools(t *testing.T) {
	const (
		plain     = `{"cniVersion":"0.3.1","name":"a","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.5/24"}}`
		off       = `{"name":"a","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","enable_overlapping_ranges":false}}`
		named     = `{"name":"a","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","networkName":"Red_Net"}}`
		sliced    = `{"name":"a","type":"macvlan","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"net","node_slice_size":"/26"}}`
		list      = `{"name":"a","plugins":[{"type":"tuning"},{"type":"bridge","ipam":{"type":"whereabouts","ipRanges":[{"range":"10.0.1.0/24"},{"range":"10.0.0.0/24"}]}}]}`
		hostLocal = `{"name":"a","type":"bridge","ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]}}`
		etcd      = `{"name":"a","type":"bridge","ipam":{"type":"whereabouts","range":"10.0.0.0/24","datastore":"local"}}`
		noRange   = `{"name":"shim","type":"whereabouts-shim","ipam":{"type":"whereabouts"}}`
		badRange  = `{"name":"a","type":"bridge","ipam":{"type":"whereabouts","range":"10.0.0.0/33"}}`
		elsewhere = `{"name":"a","type":"bridge","ipam":{"type":"whereabouts","configuration_path":"/etc/site.conf"}}`
		usual     = `{"name":"a","type":"bridge","ipam":{"type":"whereabouts","range":"10.0.0.0/24","configuration_path":"/host/etc/cni/net.d/whereabouts.d/whereabouts.conf"}}`
		usualDir  = `{"name":"a","type":"bridge","ipam":{"type":"whereabouts","range":"10.0.0.0/24","configuration_path":"/etc/cni/net.d/whereabouts.d"}}`
	)
	pool := poolOf("", "", "10.0.0.0/24")
	other := poolOf("", "", "10.9.0.0/24")
	type says struct{ named, on, known bool }
	var (
		nothing  = says{}
		isOn     = says{true, true, true}
		isOff    = says{true, false, true}
		unknown  = says{true, false, false}
		flatOff  = `{"enable_overlapping_ranges":false}`
		flatPool = `{"range":"10.0.0.0/24"}`
		flatName = `{"network_name":"blue"}`
	)
	for name, c := range map[string]struct {
		flat    string // "" is unknown
		configs []string
		pool    ipam.PoolID
		want    says
	}{
		"no definition":                             {someFlat, nil, pool, nothing},
		"protected, unless said otherwise":          {someFlat, []string{plain}, pool, isOn},
		"not protected":                             {someFlat, []string{off}, pool, isOff},
		"another pool":                              {someFlat, []string{plain}, other, nothing},
		"two of one mind":                           {someFlat, []string{plain, plain}, pool, isOn},
		"two that contradict each other":            {someFlat, []string{plain, off}, pool, unknown},
		"named network":                             {someFlat, []string{named}, poolOf("Red_Net", "", "10.0.0.0/24"), isOn},
		"named network, as its objects are named":   {someFlat, []string{named}, poolOf("red-net-"+hash("Red_Net"), "", "10.0.0.0/24"), isOn},
		"named network's range, unnamed":            {someFlat, []string{named}, pool, nothing},
		"slice":                                     {someFlat, []string{sliced}, poolOf("net", "n1", "10.0.0.64/26"), isOn},
		"slice of another network":                  {someFlat, []string{sliced}, poolOf("", "n1", "10.0.0.64/26"), nothing},
		"slice outside":                             {someFlat, []string{sliced}, poolOf("net", "n1", "10.0.1.0/26"), nothing},
		"slice of a range that is not cut":          {someFlat, []string{plain}, poolOf("", "n1", "10.0.0.64/26"), nothing},
		"the whole range of slices":                 {someFlat, []string{sliced}, poolOf("net", "", "10.0.0.0/24"), isOn},
		"any plugin of a list, any of its ranges":   {someFlat, []string{list}, pool, isOn},
		"other IPAM":                                {someFlat, []string{hostLocal}, pool, nothing},
		"other datastore":                           {someFlat, []string{etcd}, pool, nothing},
		"no range anywhere":                         {someFlat, []string{noRange}, pool, nothing},
		"range of the flat file":                    {flatPool, []string{noRange}, pool, isOn},
		"protection of the flat file":               {flatOff, []string{plain}, pool, isOff},
		"network name of the flat file":             {flatName, []string{plain}, poolOf("blue", "", "10.0.0.0/24"), isOn},
		"network name of the flat file, other":      {flatName, []string{plain}, pool, nothing},
		"flat file by its usual path":               {flatOff, []string{usual}, pool, isOff},
		"flat file by its directory":                {flatOff, []string{usualDir}, pool, isOff},
		"file elsewhere":                            {someFlat, []string{elsewhere}, pool, unknown},
		"file elsewhere may say otherwise":          {someFlat, []string{plain, elsewhere}, pool, unknown},
		"unknown flat file":                         {"", []string{plain}, pool, unknown},
		"unknown flat file, all written out":        {"", []string{`{"name":"a","type":"b","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"n","enable_overlapping_ranges":false}}`}, poolOf("n", "", "10.0.0.0/24"), isOff},
		"unknown flat file, perhaps named":          {"", []string{off}, pool, unknown},
		"unknown flat file, another range":          {"", []string{plain}, other, nothing},
		"unknown flat file, no range":               {"", []string{noRange}, other, unknown},
		"unknown flat file, perhaps slices":         {"", []string{plain}, poolOf("", "n1", "10.0.0.64/26"), unknown},
		"empty":                                     {someFlat, []string{"  "}, pool, unknown},
		"empty has no voice":                        {someFlat, []string{plain, ""}, pool, isOn},
		"not JSON":                                  {someFlat, []string{"{"}, pool, unknown},
		"not JSON has no voice":                     {someFlat, []string{off, "{"}, pool, isOff},
		"not an object":                             {someFlat, []string{`["a"]`}, pool, unknown},
		"bad range":                                 {someFlat, []string{badRange}, pool, unknown},
		"bad network name":                          {someFlat, []string{`{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":7}}`}, pool, unknown},
		"bad exclude":                               {someFlat, []string{`{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","exclude":["x"]}}`}, pool, isOn},
		"bad flat file":                             {"{", []string{plain}, pool, unknown},
		"leftover etcd beside a kubeconfig":         {someFlat, []string{`{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","datastore":"etcd","etcd_host":"http://x"}}`}, pool, isOn},
		"ipam that is no object":                    {someFlat, []string{`{"name":"a","ipam":"whereabouts"}`}, pool, nothing},
		"a plugin of the list that cannot be read":  {someFlat, []string{`{"name":"a","plugins":["x", {"type":"b","ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}]}`}, pool, isOn},
		"fixed addresses alone":                     {someFlat, []string{`{"name":"a","ipam":{"type":"whereabouts","addresses":[{"address":"10.0.0.5/24"}]}}`}, pool, nothing},
		"one range inline, so none of a file's own": {someFlat, []string{`{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"n","configuration_path":"/etc/x.conf"}}`}, poolOf("n", "", "10.9.0.0/24"), nothing},
	} {
		t.Run(name, func(t *testing.T) {
			var flat []byte
			if c.flat != "" {
				flat = []byte(c.flat)
			}
			d := definitionsOf(flat, c.configs...)
			on, known := d.Protection(c.pool)
			if got := (says{d.Named(c.pool), on, known}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDefinitionsThatWereNotRead(t *testing.T) {
	d := &definitions{}
	if _, known := d.Protection(poolOf("", "", "10.0.0.0/24")); known || !d.Named(poolOf("", "", "10.0.0.0/24")) {
		t.Error("something is known of definitions that nobody has read")
	}
}

func TestSlicesAreToldByDefinitions(t *testing.T) {
	d := definitionsOf([]byte("{}"),
		`{"name":"a","ipam":{"type":"whereabouts","range":"10.0.0.0/24","network_name":"a-b","node_slice_size":"/26"}}`,
		`{"name":"a","ipam":{"type":"whereabouts","range":"10.1.0.0/24","node_slice_size":"26"}}`,
		`{"name":"a","ipam":{"type":"whereabouts","range":"10.2.0.0/24","network_name":"A_B","node_slice_size":"26"}}`)
	odd := "a-b-" + hash("A_B")
	for name, want := range map[string]ipam.PoolID{
		"a-b-n1-10.0.0.64-26":      poolOf("a-b", "n1", "10.0.0.64/26"),
		"n1.example-10.1.0.64-26":  poolOf("", "n1.example", "10.1.0.64/26"),
		odd + "-n1-10.2.0.64-26":   poolOf(odd, "n1", "10.2.0.64/26"),
		"a-b-10.0.0.64-26":         {}, // no node
		"c-n1-10.0.0.64-26":        {}, // other network
		"a-b-n1-10.0.0.64-27":      {}, // other size
		"a-b-n1-10.9.0.64-26":      {}, // other range
		"a-b-n_1-10.0.0.64-26":     {}, // no such name
		"a-b-n1-10.0.0.64-26-more": {},
	} {
		id := poolOf("", "", "10.0.0.64/26")
		switch {
		case want.Range.IsValid():
			id.Range = want.Range
		case name == "a-b-n1-10.0.0.64-27":
			id.Range = netip.MustParsePrefix("10.0.0.64/27")
		case name == "a-b-n1-10.9.0.64-26":
			id.Range = netip.MustParsePrefix("10.9.0.64/26")
		}
		got, ok := d.sliceOf(name, id.Range)
		if got != want || ok != want.Range.IsValid() {
			t.Errorf("%s: got %s, %v; want %s", name, got, ok, want)
		}
	}
}

func FuzzDefinition(f *testing.F) {
	f.Add(`{"name":"a","plugins":[{"ipam":{"type":"whereabouts","range":"10.0.0.0/24"}}]}`, `{}`)
	f.Add(`{"ipam":{"type":"whereabouts","configuration_path":"/x","node_slice_size":"/26"}}`, `{"range":"10.0.0.0/24"}`)
	f.Fuzz(func(t *testing.T, config, flat string) {
		d := readDefinition(config, []byte(flat))
		for _, c := range d.claims {
			if len(c.ranges) == 0 && !c.anyRange {
				t.Error("a claim on nothing")
			}
			for _, r := range c.ranges {
				if r != r.Masked() {
					t.Errorf("%s has host bits, which no pool's range has", r)
				}
			}
		}
	})
}
