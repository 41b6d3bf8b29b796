package ipam

import "strings"

// keyPlace is the kind of JSON object a key stands in.
type keyPlace int

const (
	anywhere     keyPlace = iota // not looked into
	inNetwork                    // the network configuration itself
	inIPAM                       // its ipam object, and the flat file
	inRange                      // an entry of ipRanges
	inAddress                    // an entry of addresses
	inKubernetes                 // ipam.kubernetes
	inDNS                        // ipam.dns
	inRuntime                    // runtimeConfig
	inArgs                       // args
	inArgsCNI                    // args.cni
	inAttachment                 // an entry of cni.dev/valid-attachments
)

// ours reports whether all keys of an object are ours, so that one we do not
// know is a mistake. The other objects hold keys of other programs.
func (p keyPlace) ours() bool {
	switch p {
	case inIPAM, inRange, inAddress, inKubernetes, inDNS:
		return true
	}
	return false
}

// jsonType is what a key's value has to be, in the words of an error message.
type jsonType string

const (
	aString       jsonType = "a string in double quotes"
	aBool         jsonType = "true or false without quotes"
	aNumber       jsonType = "a whole number without quotes"
	anObject      jsonType = "an object in braces"
	aStringList   jsonType = `a list of strings like ["a", "b"]`
	anObjectList  jsonType = "a list of objects like [{…}, {…}]"
	anIPList      jsonType = `a list of addresses in double quotes like ["10.0.0.5"]`
	aPrefixLength jsonType = `a prefix length like "/26"`
	anything      jsonType = "anything"
)

// configKey is one known key of the configuration.
type configKey struct {
	place keyPlace
	name  string // as documented; other spellings are told by sameKey
	typ   jsonType
	inner keyPlace // of an object: where its own keys are looked up

	// vital marks a key without which nobody can tell where the records are. A
	// bad value stops every verb; one of any other key stops ADD and CHECK.
	vital bool

	secret   bool // the value is never shown
	hostOnly bool // counts in the flat file only
}

// configKeys is every key that is read, in the order errors come in.
var configKeys = []configKey{
	{place: inNetwork, name: "cniVersion", typ: aString, vital: true},
	{place: inNetwork, name: "name", typ: aString, vital: true},
	{place: inNetwork, name: "ipam", typ: anObject, vital: true},
	{place: inNetwork, name: "runtimeConfig", typ: anObject, inner: inRuntime},
	{place: inNetwork, name: "args", typ: anObject, inner: inArgs},
	{place: inNetwork, name: "prevResult", typ: anything},
	{place: inNetwork, name: "cni.dev/valid-attachments", typ: anything},
	{place: inNetwork, name: "cni.dev/attachments", typ: anything},

	{place: inIPAM, name: "type", typ: aString},
	{place: inIPAM, name: "range", typ: aString},
	{place: inIPAM, name: "range_start", typ: aString},
	{place: inIPAM, name: "range_end", typ: aString},
	{place: inIPAM, name: "exclude", typ: aStringList},
	{place: inIPAM, name: "ipRanges", typ: anObjectList},
	{place: inIPAM, name: "gateway", typ: aString},
	{place: inIPAM, name: "allow_dot_zero", typ: aBool},
	{place: inIPAM, name: "routes", typ: anObjectList},
	{place: inIPAM, name: "dns", typ: anObject, inner: inDNS},
	{place: inIPAM, name: "addresses", typ: anObjectList},
	{place: inIPAM, name: "enable_overlapping_ranges", typ: aBool},
	{place: inIPAM, name: "network_name", typ: aString, vital: true},
	{place: inIPAM, name: "node_slice_size", typ: aPrefixLength},
	{place: inIPAM, name: "node_slice_max", typ: aNumber},
	{place: inIPAM, name: "datastore", typ: aString, vital: true},
	{place: inIPAM, name: "kubernetes", typ: anObject, inner: inKubernetes, vital: true},
	{place: inIPAM, name: "etcd_host", typ: aString, vital: true, secret: true}, // a URL may hold a password
	{place: inIPAM, name: "etcd_username", typ: aString, vital: true},
	{place: inIPAM, name: "etcd_password", typ: aString, vital: true, secret: true},
	{place: inIPAM, name: "etcd_key_file", typ: aString, vital: true},
	{place: inIPAM, name: "etcd_cert_file", typ: aString, vital: true},
	{place: inIPAM, name: "etcd_ca_cert_file", typ: aString, vital: true},
	{place: inIPAM, name: "local_path", typ: aString, vital: true},
	{place: inIPAM, name: "log_file", typ: aString},
	{place: inIPAM, name: "log_level", typ: aString},
	{place: inIPAM, name: "configuration_path", typ: aString, vital: true},
	{place: inIPAM, name: "run_directory", typ: aString, hostOnly: true},
	{place: inIPAM, name: "state_directory", typ: aString, hostOnly: true},
	{place: inIPAM, name: "reconciler_cron_expression", typ: aString},
	{place: inIPAM, name: "sleep_for_race", typ: aNumber},
	{place: inIPAM, name: "leader_lease_duration", typ: aNumber},
	{place: inIPAM, name: "leader_renew_deadline", typ: aNumber},
	{place: inIPAM, name: "leader_retry_period", typ: aNumber},

	{place: inRange, name: "range", typ: aString},
	{place: inRange, name: "range_start", typ: aString},
	{place: inRange, name: "range_end", typ: aString},
	{place: inRange, name: "exclude", typ: aStringList},
	{place: inRange, name: "gateway", typ: aString},
	{place: inRange, name: "node_slice_size", typ: aPrefixLength},

	{place: inAddress, name: "address", typ: aString},
	{place: inAddress, name: "gateway", typ: aString},

	{place: inKubernetes, name: "kubeconfig", typ: aString, vital: true},
	{place: inKubernetes, name: "k8s_api_root", typ: aString},

	{place: inDNS, name: "nameservers", typ: aStringList},
	{place: inDNS, name: "domain", typ: aString},
	{place: inDNS, name: "search", typ: aStringList},
	{place: inDNS, name: "options", typ: aStringList},

	{place: inRuntime, name: "ips", typ: anIPList},

	{place: inArgs, name: "cni", typ: anObject, inner: inArgsCNI},
	{place: inArgsCNI, name: "ips", typ: anIPList},

	{place: inAttachment, name: "containerID", typ: aString, vital: true},
	{place: inAttachment, name: "ifname", typ: aString, vital: true},
}

// findKey returns the known key that name is a spelling of, or nil.
func findKey(in keyPlace, name string) *configKey {
	folded := foldKey(name)
	for i := range configKeys {
		if configKeys[i].place == in && foldKey(configKeys[i].name) == folded {
			return &configKeys[i]
		}
	}
	return nil
}

// foldKey is what all spellings of a key have in common: rangeStart and
// Range_Start are range_start.
func foldKey(name string) string {
	return strings.ToLower(strings.ReplaceAll(name, "_", ""))
}

// nearestKey returns the known key that name looks like a slip of, or "".
func nearestKey(in keyPlace, name string) string {
	folded := foldKey(name)
	if len(folded) > 40 { // no slip of ours, and not worth the time
		return ""
	}
	nearest, least := "", 3
	for _, k := range configKeys {
		if k.place != in {
			continue
		}
		if d := editDistance(folded, foldKey(k.name)); d < least && 3*d <= len(folded) {
			nearest, least = k.name, d
		}
	}
	return nearest
}

// editDistance counts the letters to insert, drop, change or swap with their
// neighbour to make a into b.
func editDistance(a, b string) int {
	steps := make([][]int, len(a)+1) // steps[i][j] is for a[:i] and b[:j]
	for i := range steps {
		steps[i] = make([]int, len(b)+1)
		steps[i][0] = i
	}
	for j := range steps[0] {
		steps[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := steps[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			steps[i][j] = min(change, steps[i-1][j]+1, steps[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				steps[i][j] = min(steps[i][j], steps[i-2][j-2]+1)
			}
		}
	}
	return steps[len(a)][len(b)]
}
