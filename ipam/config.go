package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
)

// The stores that `datastore` can name.
const (
	DatastoreKubernetes = "kubernetes"
	DatastoreEtcd       = "etcd"
	DatastoreLocal      = "local"
)

// Paths that hold unless the configuration says otherwise.
const (
	DefaultLocalPath      = "/var/lib/cni/whereabouts/whereabouts.db"
	DefaultRunDirectory   = "/run/whereabouts"
	DefaultStateDirectory = "/var/lib/cni/whereabouts"
)

// Sources is everything a configuration is read from.
type Sources struct {
	// Stdin is the network configuration of one plugin, as a runtime passes it.
	Stdin []byte

	// Args is the value of CNI_ARGS.
	Args string

	// Getenv is asked for NODENAME, WHEREABOUTS_RUN_DIR, WHEREABOUTS_STATE_DIR
	// and KUBERNETES_SERVICE_HOST. nil is an empty environment.
	Getenv func(string) string

	// ReadFile is asked for the flat file, nodename and /etc/hostname, and
	// answers like os.ReadFile. nil is a host without files.
	ReadFile func(path string) ([]byte, error)
}

// Config is what an operator wrote, read and checked.
type Config struct {
	CNIVersion  string // "0.1.0" when none is given
	Name        string // of the CNI network
	NetworkName string // network_name, the address space; "" is the default one

	// Ranges is the top-level range, then those of ipRanges in their order. All
	// known gateways and fixed addresses are reserved in each. A range with
	// other errors than its own CIDR is here too, by its CIDR alone, so that
	// what it holds can be released; Invalid has the errors.
	Ranges []Range

	// Invalid has the errors that stop ADD and CHECK, but not DEL and GC. Each
	// wraps ErrInvalid, or ErrArgs when it is about CNI_ARGS.
	Invalid []error

	Fixed     []FixedAddress // addresses
	Requested []Request      // each address once, in the order of first appearance

	Gateway     netip.Addr   // the top-level one; zero when there is none
	ArgGateways []netip.Addr // GATEWAY of CNI_ARGS

	Routes []*types.Route
	DNS    types.DNS

	Overlap      bool // an address is unique in its whole address space
	AllowDotZero bool
	SliceMax     int // most slices of a node in each range

	Datastore  string // one of the Datastore constants
	Kubeconfig string // "" is in-cluster
	Etcd       EtcdConfig
	LocalPath  string

	LogFile        string // "" when there is none or it is not permitted
	LogLevel       string // "debug", "verbose", "error", "panic" or ""
	RunDirectory   string // what a reboot may empty
	StateDirectory string // what survives a reboot
	CronExpression string // reconciler_cron_expression, unchecked
	Node           string // name of this node; "" when unknown

	Pod     PodArgs
	ArgsErr error // what is wrong with CNI_ARGS, wraps ErrArgs; stops ADD and CHECK

	PrevResult json.RawMessage // nil when absent

	// ValidAttachments is nil when the key is absent, which is not the same as
	// an empty list: nothing is attached any more.
	ValidAttachments *[]types.GCAttachment

	Warnings []string // for the log; without secrets
	FlatFile string   // path of the flat file that was read; "" if none
}

// EtcdConfig is how to reach etcd.
type EtcdConfig struct {
	Endpoints                 []string
	Username, Password        string
	KeyFile, CertFile, CAFile string
}

// FixedAddress is an entry of `addresses`: on the result of every pod.
type FixedAddress struct {
	Address netip.Prefix // host bits kept; a /32 or /128 when written without a mask
	Gateway netip.Addr   // zero when there is none
}

// Request is an address somebody asked for by number.
type Request struct {
	Addr   netip.Addr
	Bits   int    // -1 when written without a prefix length
	Source string // who asks, for messages: "CNI_ARGS IP"
}

// configParser collects a Config. Errors that stop every verb go to fatal, all
// others into the Config.
type configParser struct {
	Sources
	cfg   *Config
	fatal []error
	sizes []configValue // node_slice_size of each range, where it has one of its own
}

// ParseConfig reads and checks a configuration. It answers an error that wraps
// ErrDecode for text that is not JSON, and ErrInvalid for what leaves it unknown
// where the records are: no ipam object, a bad datastore, address space or flat
// file. When just the datastore is at fault, the Config is there beside the
// error. All else is collected in Invalid and ArgsErr, so that DEL and GC go on.
func ParseConfig(s Sources) (*Config, error) {
	if s.Getenv == nil {
		s.Getenv = func(string) string { return "" }
	}
	if s.ReadFile == nil {
		s.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	}
	p := &configParser{Sources: s, cfg: &Config{}}
	network, inline, err := p.network()
	if err != nil {
		return nil, err
	}
	flat, err := p.flatFile(inline)
	if err != nil {
		return nil, err
	}
	p.dropHostOnly(inline)
	ipam := mergeConfig(inline, flat)
	asked := sourceGiven(network, ipam, s.Args)
	p.check(network)
	p.check(ipam)
	if p.fatal != nil {
		return nil, errors.Join(p.fatal...)
	}
	p.readNetwork(network)
	if p.cfg.ValidAttachments, err = p.validAttachments(network); err != nil {
		return nil, err
	}
	args := p.readArgs()
	p.readRequests(network, args)
	p.readAddresses(ipam, asked)
	p.readResult(ipam)
	p.readHost(ipam)
	return p.cfg, p.readDatastore(ipam)
}

// network reads the network configuration and its ipam object.
func (p *configParser) network() (network, ipam configSection, err error) {
	const what = "network configuration"
	if err := CheckJSON(p.Stdin, what); err != nil {
		return network, ipam, err
	}
	if k := jsonKindOf(p.Stdin); k != jsonObject {
		return network, ipam, fmt.Errorf("%w: it is %s; it must be an object like {\"name\": …, \"ipam\": {…}}", ErrInvalid, k)
	}
	network = p.section(inNetwork, "", "", p.Stdin)
	v, given := network.values["ipam"]
	if !given || jsonKindOf(v.raw) == jsonNull {
		return network, ipam, invalidKey("ipam", `missing; add "ipam": {"type": "whereabouts", "range": "…"}`)
	}
	if err := v.check(); err != nil {
		return network, ipam, err
	}
	return network, p.section(inIPAM, "", "", v.raw), nil
}

func (p *configParser) readNetwork(network configSection) {
	p.cfg.CNIVersion = network.text("cniVersion")
	if p.cfg.CNIVersion == "" {
		p.cfg.CNIVersion = "0.1.0"
	}
	p.cfg.Name = network.text("name")
	if raw := network.get("prevResult").raw; !jsonEmpty(raw) {
		p.cfg.PrevResult = raw
	}
}

// report files an error about a key where it belongs.
func (p *configParser) report(v configValue, err error) {
	if v.key.vital {
		p.fatal = append(p.fatal, err)
		return
	}
	p.invalid(err)
}

func (p *configParser) invalid(err error) { p.cfg.Invalid = append(p.cfg.Invalid, err) }

func (p *configParser) warnf(format string, args ...any) {
	p.cfg.Warnings = append(p.cfg.Warnings, fmt.Sprintf(format, args...))
}
