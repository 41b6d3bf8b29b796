package ipam

import (
	"net/netip"
	"strings"
)

// readRequests collects the addresses somebody asked for by number.
func (p *configParser) readRequests(network configSection, args map[string]string) {
	for _, s := range splitComma(args["IP"]) {
		p.request(s, "CNI_ARGS IP")
	}
	if v := network.get("runtimeConfig"); v.object != nil {
		p.requestAll(*v.object)
	}
	if v := network.get("args"); v.object != nil {
		if cni := v.object.get("cni"); cni.object != nil {
			p.requestAll(*cni.object)
		}
	}
}

func (p *configParser) requestAll(s configSection) {
	for _, text := range s.texts("ips") {
		for _, one := range splitComma(text) {
			p.request(one, s.get("ips").label)
		}
	}
}

// request adds an address unless it is there already: a runtime and its meta
// plugin name the same one in several ways. A prefix length given anywhere
// counts.
func (p *configParser) request(s, source string) {
	addr, bits, err := parseAddrBits(s)
	if err != nil {
		p.invalid(invalidArg(source, "%w", err))
		return
	}
	for i := range p.cfg.Requested {
		if same := &p.cfg.Requested[i]; same.Addr == addr {
			if same.Bits < 0 {
				same.Bits = bits
			}
			return
		}
	}
	p.cfg.Requested = append(p.cfg.Requested, Request{Addr: addr, Bits: bits, Source: source})
}

// parseAddrBits reads an address with or without a prefix length, which is -1
// then.
func parseAddrBits(s string) (netip.Addr, int, error) {
	if strings.Contains(s, "/") {
		prefix, err := ParsePrefix(s)
		return prefix.Addr(), prefix.Bits(), err
	}
	addr, err := ParseAddr(s)
	return addr, -1, err
}
