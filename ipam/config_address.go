package ipam

import (
	"fmt"
	"net/netip"
)

// sourceGiven reports whether anything names an address, right or wrong.
func sourceGiven(network, ipam configSection, args string) bool {
	if ipam.has("range") || ipam.has("ipRanges") || ipam.has("addresses") {
		return true
	}
	if runtime := network.get("runtimeConfig"); runtime.object != nil && runtime.object.has("ips") {
		return true
	}
	if v := network.get("args"); v.object != nil {
		if cni := v.object.get("cni"); cni.object != nil && cni.object.has("ips") {
			return true
		}
	}
	values, _ := parseArgs(args)
	return values["IP"] != ""
}

// readAddresses reads the ranges and fixed addresses. given says whether
// anything in the configuration names an address at all.
func (p *configParser) readAddresses(ipam configSection, given bool) {
	if !given {
		p.invalid(errNoSource())
	}
	p.cfg.AllowDotZero = ipam.flag("allow_dot_zero", false)
	p.cfg.Gateway = p.addr(ipam.get("gateway"))
	gateways := append([]netip.Addr{p.cfg.Gateway}, p.cfg.ArgGateways...)

	p.topRange(ipam)
	for _, entry := range p.objects(ipam, "ipRanges", inRange) {
		gateways = append(gateways, p.entryRange(entry))
	}
	for _, entry := range p.objects(ipam, "addresses", inAddress) {
		gateways = append(gateways, p.fixed(entry))
	}
	p.reserve(gateways)
	p.sliceSizes(ipam.get("node_slice_size"))
	p.sliceMax(ipam)
}

func errNoSource() error {
	return invalidKey("ipam", "%w: found no range, ipRanges, addresses or requested address; "+
		`set "range" to a CIDR like "10.0.0.0/24"`, ErrNoSource)
}

// topRange reads the range that stands directly in ipam.
func (p *configParser) topRange(ipam configSection) {
	if ipam.has("range") {
		p.addRange(ipam, p.cfg.Gateway)
		return
	}
	for _, name := range []string{"range_start", "range_end", "exclude"} {
		if v := ipam.get(name); ipam.has(name) {
			p.warnf("%s%s is ignored: it belongs to range, which is not set; put it into the entries of ipRanges",
				v.label, inFlatFile(v.from))
		}
	}
}

// entryRange reads an entry of ipRanges and returns its gateway, if any.
func (p *configParser) entryRange(entry configSection) netip.Addr {
	gateway := p.addr(entry.get("gateway"))
	if entry.has("range") {
		p.addRange(entry, gateway)
	} else {
		p.invalid(invalidKey(joinKey(entry.path, "range"), `missing; set it to a CIDR like "10.0.0.0/24"`))
	}
	return gateway
}

// addRange adds the range of a section. One with a bad exclude is added by its
// CIDR alone: that names its pool, and a release needs no more.
func (p *configParser) addRange(s configSection, gateway netip.Addr) {
	spec := RangeSpec{
		Range:        s.text("range"),
		Start:        s.text("range_start"),
		End:          s.text("range_end"),
		Exclude:      s.texts("exclude"),
		AllowDotZero: p.cfg.AllowDotZero,
		Key:          s.path,
	}
	if gateway.IsValid() {
		spec.Gateway = gateway.String()
	}
	r, warnings, err := ParseRange(spec)
	size := configValue{}
	if s.place == inRange {
		size = s.get("node_slice_size")
	}
	p.cfg.Warnings = append(p.cfg.Warnings, warnings...)
	if err == nil {
		p.cfg.Ranges, p.sizes = append(p.cfg.Ranges, r), append(p.sizes, size)
		return
	}
	bare, _, bareErr := ParseRange(RangeSpec{Range: spec.Range, Key: spec.Key})
	from := s.get("range").from
	if bareErr == nil {
		p.cfg.Ranges, p.sizes = append(p.cfg.Ranges, bare), append(p.sizes, size)
		from = s.get("exclude").from
	}
	p.invalid(fmt.Errorf("%w%s", err, inFlatFile(from)))
}

// fixed adds an entry of addresses and returns its gateway, if any.
func (p *configParser) fixed(entry configSection) netip.Addr {
	gateway := p.addr(entry.get("gateway"))
	v := entry.get("address")
	if !entry.has("address") {
		p.invalid(invalidKey(joinKey(entry.path, "address"), `missing; set it to an address with its mask like "10.0.0.5/24"`))
		return gateway
	}
	addr, bits, err := parseAddrBits(v.text())
	if err != nil {
		p.invalid(invalidKey(v.label+inFlatFile(v.from), "%w", err))
		return gateway
	}
	if bits < 0 {
		bits = addr.BitLen()
	}
	f := FixedAddress{Address: netip.PrefixFrom(addr, bits)}
	if gateway.IsValid() && gateway.Is4() != addr.Is4() {
		p.warnf("%s.gateway %s is left out: it is of another family than address %s", entry.path, gateway, addr)
	} else {
		f.Gateway = gateway
	}
	p.cfg.Fixed = append(p.cfg.Fixed, f)
	return gateway
}

// addr reads a key that holds one address; the zero address is none.
func (p *configParser) addr(v configValue) netip.Addr {
	if jsonEmpty(v.raw) {
		return netip.Addr{}
	}
	addr, err := ParseAddr(v.text())
	if err != nil {
		p.invalid(invalidKey(v.label+inFlatFile(v.from), "%w", err))
		return netip.Addr{}
	}
	return addr
}

// reserve keeps gateways and fixed addresses out of every range.
func (p *configParser) reserve(gateways []netip.Addr) {
	var taken []netip.Addr
	for _, gateway := range gateways {
		if gateway.IsValid() {
			taken = append(taken, gateway)
		}
	}
	for _, f := range p.cfg.Fixed {
		taken = append(taken, f.Address.Addr())
	}
	for i, r := range p.cfg.Ranges {
		p.cfg.Ranges[i] = r.Reserve(taken...)
	}
}
