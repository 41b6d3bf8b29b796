package ipam

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sliceSizes reads node_slice_size: the top-level one, which is for all ranges that
// have none of their own, and those of the entries.
func (p *configParser) sliceSizes(top configValue) {
	var common []int // ranges without a size of their own
	for i, own := range p.sizes {
		if jsonEmpty(own.raw) {
			common = append(common, i)
			continue
		}
		p.cut(own, i)
	}
	p.cut(top, common...)
}

// cut gives ranges the size that a value says, if it suits them all.
func (p *configParser) cut(v configValue, indices ...int) {
	size, ok := p.sliceSize(v)
	if !ok || size == 0 {
		return
	}
	var ranges []Range
	for _, i := range indices {
		ranges = append(ranges, p.cfg.Ranges[i])
	}
	for _, r := range ranges {
		if size < r.Prefix.Bits() || size > r.Prefix.Addr().BitLen() {
			p.invalid(invalidKey(v.label+inFlatFile(v.from), `a slice of "/%d" cannot be cut from range %s; %s`, size, r.Prefix, suitableSizes(ranges)))
			return
		}
	}
	for _, i := range indices {
		p.cfg.Ranges[i].SliceSize = size
	}
}

// sliceSize understands a prefix length; 0 is none.
func (p *configParser) sliceSize(v configValue) (size int, ok bool) {
	if jsonEmpty(v.raw) {
		return 0, true
	}
	found := strings.TrimSpace(string(v.raw))
	if jsonKindOf(v.raw) == jsonString {
		found = strings.TrimSpace(v.text())
	}
	size, err := strconv.Atoi(strings.TrimPrefix(found, "/"))
	if err != nil || size < 0 {
		p.invalid(invalidKey(v.label+inFlatFile(v.from), `%q is not a prefix length; write one like "/26" or "26"`, shortenValue(found)))
		return 0, false
	}
	return size, true
}

// suitableSizes says which sizes suit all ranges that are cut by the same one.
func suitableSizes(ranges []Range) string {
	shortest, longest := 0, 128
	for _, r := range ranges {
		shortest, longest = max(shortest, r.Prefix.Bits()), min(longest, r.Prefix.Addr().BitLen())
	}
	if shortest > longest {
		return "no size suits all ranges of this network; give the entries of ipRanges a node_slice_size of their own"
	}
	return fmt.Sprintf(`use "/%d" to "/%d"`, shortest, longest)
}

// sliceMax reads node_slice_max.
func (p *configParser) sliceMax(ipam configSection) {
	p.cfg.SliceMax = 1
	if !ipam.has("node_slice_max") {
		return
	}
	v := ipam.get("node_slice_max")
	label := v.label + inFlatFile(v.from)
	n, err := strconv.Atoi(strings.TrimSpace(string(v.raw)))
	if err != nil || n < 1 {
		p.invalid(invalidKey(label, "%s is not a number of slices; write 1 or more", shortenValue(string(v.raw))))
		return
	}
	p.cfg.SliceMax = n
	own := func(v configValue) bool { return !jsonEmpty(v.raw) }
	if !ipam.has("node_slice_size") && !slices.ContainsFunc(p.sizes, own) {
		p.warnf("%s is ignored: node_slice_size is not set; set it or remove this key", label)
	}
}
