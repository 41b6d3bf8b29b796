package ipcontrol

import (
	"encoding/json"
	"fmt"
	"math/big"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// explain reads all parts of a configuration that use this plugin.
func (l *linter) explain(text []byte) {
	if err := ipam.CheckJSON(text, "network configuration"); err != nil {
		l.say(levelError, "%v", err)
		return
	}
	plugins, ok := kube.Plugins(definitionText(text))
	if !ok {
		l.say(levelError, "it is not an object like {\"name\": …, \"ipam\": {…}}, or a list with \"plugins\"")
		return
	}
	if len(plugins) == 0 {
		l.say(levelError, `no part of it has "ipam": {"type": "whereabouts"}: this plugin is not asked`)
	}
	for _, plugin := range plugins {
		l.explainOne(plugin)
	}
}

// definitionText is spec.config, where the text is a whole definition as
// "kubectl get -o json" prints it.
func definitionText(text []byte) string {
	var object struct {
		Kind string
		Spec struct{ Config string }
	}
	if json.Unmarshal(text, &object) == nil && object.Kind == "NetworkAttachmentDefinition" {
		return object.Spec.Config
	}
	return string(text)
}

func (l *linter) explainOne(plugin []byte) {
	sources := ipam.Sources{Stdin: plugin, Getenv: l.onNode, ReadFile: l.ReadFile}
	cfg, err := ipam.ParseConfig(sources)
	if err != nil {
		l.say(levelError, "%s", plain(err))
	}
	if cfg == nil {
		return
	}
	for _, err := range cfg.Invalid {
		l.say(levelError, "%s", plain(err))
	}
	for _, text := range cfg.Warnings {
		l.say(levelError, "%s", text)
	}
	if cfg.FlatFile != "" {
		l.say(levelNote, "what is left out comes from %s", cfg.FlatFile)
	}
	written, _ := ipam.WrittenRanges(sources)
	l.writtenOddities(written)
	keys := rangeKeys(written, cfg.Ranges)
	for i, r := range cfg.Ranges {
		row := lintRange{keys[i], cfg, r}
		l.rows = append(l.rows, row)
		l.doc.Ranges = append(l.doc.Ranges, l.describe(row))
		l.oddities(row)
	}
}

// rangeKeys are where the ranges are written: those that could not be read have no
// range, so that the two may differ.
func rangeKeys(written []ipam.RangeSpec, ranges []ipam.Range) []string {
	keys := make([]string, len(ranges))
	i := 0
	for _, spec := range written {
		r, _, err := ipam.ParseRange(ipam.RangeSpec{Range: spec.Range})
		if err != nil || i == len(ranges) || r.Prefix != ranges[i].Prefix {
			continue
		}
		keys[i] = "range"
		if spec.Key != "" {
			keys[i] = spec.Key
		}
		i++
	}
	return keys
}

func (l *linter) writtenOddities(written []ipam.RangeSpec) {
	for _, spec := range written {
		for i, entry := range spec.Exclude {
			if network, found := ipam.HostBits(entry); found {
				key := fmt.Sprintf("exclude[%d]", i)
				if spec.Key != "" {
					key = spec.Key + "." + key
				}
				l.say(levelWarning, "%s: %q has host bits and excludes all of %s; write that, or first-last for less", key, entry, network)
			}
		}
	}
}

// oddities are what is right and may be no intention.
func (l *linter) oddities(r lintRange) {
	size, excluded := r.Size(), r.Excluded()
	if size.Cmp(excluded) == 0 {
		l.say(levelError, "%s: nothing is left of %s to hand out: all %s addresses are excluded; widen the range or exclude less", r.key, r.Range, size)
	}
	if r.Gateway.IsValid() && !r.Gateway.Less(r.First) && !r.Last.Less(r.Gateway) {
		l.say(levelNote, "%s: the gateway %s lies inside the range and is not handed out", r.key, r.Gateway)
	} else if r.Gateway.IsValid() && r.Gateway.Is4() == r.First.Is4() && !r.Contains(r.Gateway) && !r.Gateway.IsLinkLocalUnicast() {
		l.say(levelWarning, "%s: the gateway %s lies outside %s; pods cannot reach it without a route", r.key, r.Gateway, r.Prefix)
	}
	if n, each := slicing(r); n != "" {
		l.say(levelNote, "%s: node_slice_size cuts %s into %s slices of up to %s addresses, one for each node; more nodes than that get none", r.key, r.Prefix, countText(n), countText(each))
	}
}

// slicing answers how many slices a range is cut into, and of how many addresses.
func slicing(r lintRange) (n, each string) {
	size := r.SliceSize
	if size == 0 || size < r.Prefix.Bits() || size > r.Prefix.Addr().BitLen() {
		return "", ""
	}
	power := func(bits int) *big.Int { return new(big.Int).Lsh(big.NewInt(1), uint(bits)) }
	return power(size - r.Prefix.Bits()).String(), power(r.Prefix.Addr().BitLen() - size).String()
}

func (l *linter) describe(r lintRange) rangeDocument {
	size, excluded := r.Size(), r.Excluded()
	d := rangeDocument{
		Key: r.key, Network: r.cfg.NetworkName, Range: r.Prefix.String(), First: r.First.String(), Last: r.Last.String(),
		Usable: size.String(), Excluded: excluded.String(), Count: new(big.Int).Sub(size, excluded).String(),
		Pool: kube.PoolName(r.cfg.PoolOf(r.Range)), Overlap: r.cfg.Overlap,
	}
	for _, span := range r.Blocked() {
		text := span.String()
		if span.From() == span.To() {
			text = span.From().String()
		} else if p, ok := span.Prefix(); ok {
			text = p.String()
		}
		d.Blocked = append(d.Blocked, text)
	}
	if d.Slices, d.PerSlice = slicing(r); d.Slices != "" {
		d.Pool = ""
	}
	return d
}
