package ipam

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// readResult reads what is passed through to the result.
func (p *configParser) readResult(ipam configSection) {
	p.cfg.NetworkName = ipam.text("network_name")
	p.cfg.Overlap = ipam.flag("enable_overlapping_ranges", true)
	if dns := ipam.get("dns").object; dns != nil {
		p.cfg.DNS = types.DNS{
			Nameservers: dns.texts("nameservers"),
			Domain:      dns.text("domain"),
			Search:      dns.texts("search"),
			Options:     dns.texts("options"),
		}
	}
	routes := ipam.get("routes")
	list, _ := jsonElements(routes.raw)
	for i, raw := range list {
		label := fmt.Sprintf("%s[%d]%s", routes.label, i, inFlatFile(routes.from))
		var route types.Route
		if err := json.Unmarshal(raw, &route); err != nil {
			p.invalid(fmt.Errorf(`%w; write a route like {"dst": "10.0.0.0/8", "gw": "10.1.0.1"}`,
				invalidKey(label, "%s", shortenValue(err.Error()))))
			continue
		}
		if route.Dst.IP == nil {
			p.invalid(invalidKey(label, `has no dst; write a route like {"dst": "10.0.0.0/8", "gw": "10.1.0.1"}`))
			continue
		}
		p.cfg.Routes = append(p.cfg.Routes, &route)
	}
}

// validAttachments reads the list a runtime passes to GC. What cannot be
// understood is an error, never an empty list: GC would free every address.
func (p *configParser) validAttachments(network configSection) (*[]types.GCAttachment, error) {
	v, given := network.values["cni.dev/valid-attachments"]
	if !given {
		v, given = network.values["cni.dev/attachments"] // as older runtimes spell it
	}
	if !given {
		return nil, nil
	}
	out := []types.GCAttachment{}
	if jsonKindOf(v.raw) == jsonNull {
		return &out, nil
	}
	list, ok := jsonElements(v.raw)
	if !ok {
		return nil, invalidKey(v.label, "expected %s, found %s", anObjectList, v.show(v.raw))
	}
	for i, raw := range list {
		label := fmt.Sprintf("%s[%d]", v.label, i)
		if k := jsonKindOf(raw); k != jsonObject {
			return nil, invalidKey(label, `expected an object like {"containerID": "…", "ifname": "eth0"}, found %s`, v.show(raw))
		}
		entry := p.section(inAttachment, label, "", raw)
		p.check(entry)
		if p.fatal == nil && !entry.has("containerID") {
			p.fatal = append(p.fatal, invalidKey(label+".containerID", "missing; the runtime has to name every attachment"))
		}
		if p.fatal != nil {
			return nil, p.fatal[0]
		}
		out = append(out, types.GCAttachment{ContainerID: entry.text("containerID"), IfName: entry.text("ifname")})
	}
	return &out, nil
}
