package kube

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// pluginName is ipam.type of a network that takes its addresses from us.
const pluginName = "whereabouts"

// readDefinition reads a definition's spec.config: one plugin's configuration or a
// list. flat is the content of the nodes' flat file; nil when it is not known, and
// then what a definition leaves open is open.
func readDefinition(config string, flat []byte) *definition {
	d := &definition{sum: sha256.Sum256([]byte(config))}
	plugins, ok := pluginsOf(config)
	d.unclear = !ok
	for _, plugin := range plugins {
		c, clear := readClaim(plugin, flat)
		d.unclear = d.unclear || !clear
		if c != nil {
			d.claims = append(d.claims, *c)
		}
	}
	return d
}

// pluginsOf lists the configurations in spec.config that use this plugin.
func pluginsOf(config string) (plugins []json.RawMessage, ok bool) {
	if strings.TrimSpace(config) == "" {
		return nil, false
	}
	var network struct {
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(config), &network); err != nil {
		return nil, false
	}
	all := network.Plugins
	if all == nil {
		all = []json.RawMessage{json.RawMessage(config)}
	}
	for _, plugin := range all {
		var p struct {
			IPAM struct {
				Type string `json:"type"`
			} `json:"ipam"`
		}
		if json.Unmarshal(plugin, &p) == nil && p.IPAM.Type == pluginName {
			plugins = append(plugins, plugin)
		}
	}
	return plugins, true
}

// readClaim reads one plugin's configuration as the plugin would on a node. The claim
// is nil if it names no pool of this cluster; clear is false if there may be more to
// it.
func readClaim(plugin, flat []byte) (c *poolClaim, clear bool) {
	cfg, hidden, err := readAs(plugin, flat, hiddenFiles[0])
	if err != nil {
		return nil, false
	}
	clear = len(cfg.Invalid) == 0
	if cfg.Datastore != ipam.DatastoreKubernetes {
		return nil, clear
	}
	c = &poolClaim{network: cfg.NetworkName, ranges: prefixes(cfg), overlap: cfg.Overlap, sizes: map[netip.Prefix]int{}}
	for _, r := range cfg.Ranges {
		if r.SliceSize > 0 {
			c.sizes[r.Prefix] = r.SliceSize
		}
	}
	if !hidden {
		c.config = cfg
	} else {
		other, _, err := readAs(plugin, flat, hiddenFiles[1])
		if err != nil {
			return nil, false
		}
		c.open(other)
	}
	if len(c.ranges) == 0 && !c.anyRange {
		return nil, clear
	}
	return c, clear
}

// hiddenFiles stand for a file that exists on the nodes only. What differs between a
// configuration read with the one and with the other is what that file decides.
var hiddenFiles = [2]string{
	`{"network_name": "a", "range": "192.0.2.0/24", "enable_overlapping_ranges": false}`,
	`{"network_name": "b", "range": "198.51.100.0/24", "enable_overlapping_ranges": true}`,
}

// open marks what another reading says otherwise. A hidden file counts for the ranges
// only where the definition has none: to put some of them into either is possible,
// and nobody does it.
func (c *poolClaim) open(other *ipam.Config) {
	c.anyNetwork = c.network != other.NetworkName
	c.overlapOpen = c.overlap != other.Overlap
	c.sliceOpen = len(c.sizes) == 0
	common := slices.DeleteFunc(slices.Clone(c.ranges), func(p netip.Prefix) bool {
		return !slices.Contains(prefixes(other), p)
	})
	c.anyRange = len(common) == 0 && len(c.ranges) > 0
	c.ranges = common
}

func prefixes(cfg *ipam.Config) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range cfg.Ranges {
		all = append(all, r.Prefix)
	}
	return all
}

// readAs reads a configuration on a node whose flat file is flat and which has the
// content of hiddenFile in every file that is not known here. hidden says whether
// there was such a file to read.
func readAs(plugin, flat []byte, hiddenFile string) (cfg *ipam.Config, hidden bool, err error) {
	cfg, err = ipam.ParseConfig(ipam.Sources{
		Stdin: plugin,
		// Somebody asks for an address: a definition without one is no mistake,
		// it only names no pool.
		Args:   "IgnoreUnknown=1;IP=0.0.0.1",
		Getenv: nodeEnvironment,
		ReadFile: func(file string) ([]byte, error) {
			switch whatFile(file) {
			case flatFile:
				if flat != nil {
					return flat, nil
				}
			case flatDirectory:
				return nil, syscall.EISDIR
			case nodeFile:
				return nil, fs.ErrNotExist
			}
			hidden = true
			return []byte(hiddenFile), nil
		},
	})
	if err != nil {
		return nil, hidden, errors.Join(ipam.ErrInvalid, err)
	}
	return cfg, hidden, nil
}

// nodeEnvironment lets a configuration without a kubeconfig pass: which one a node
// has is no question here.
func nodeEnvironment(name string) string {
	if name == "KUBERNETES_SERVICE_HOST" {
		return "a node"
	}
	return ""
}

// The files that a configuration is read from.
type fileKind int

const (
	otherFile     fileKind = iota // named by configuration_path
	flatFile                      // where it is installed
	flatDirectory                 // its directory
	nodeFile                      // has the node's name
)

func whatFile(file string) fileKind {
	const directory, name = "whereabouts.d", "whereabouts.conf"
	file = path.Clean(file)
	parent := path.Base(path.Dir(file))
	switch base := path.Base(file); {
	case base == "nodename" || file == "/etc/hostname":
		return nodeFile
	case base == directory:
		return flatDirectory
	case base == name && parent == directory:
		return flatFile
	}
	return otherFile
}
