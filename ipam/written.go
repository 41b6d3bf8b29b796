package ipam

import "io/fs"

// WrittenRanges are the ranges of a configuration as they are written, in the order
// of Config.Ranges: for who explains what became of them. A value of the wrong type
// is left out. Errors are those of ParseConfig about what is no configuration at all.
func WrittenRanges(s Sources) ([]RangeSpec, error) {
	if s.Getenv == nil {
		s.Getenv = func(string) string { return "" }
	}
	if s.ReadFile == nil {
		s.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	}
	p := &configParser{Sources: s, cfg: &Config{}}
	_, inline, err := p.network()
	if err != nil {
		return nil, err
	}
	flat, err := p.flatFile(inline)
	if err != nil {
		return nil, err
	}
	ipam := mergeConfig(inline, flat)
	p.check(ipam)
	var written []RangeSpec
	if ipam.has("range") {
		written = append(written, ipam.written())
	}
	for _, entry := range p.objects(ipam, "ipRanges", inRange) {
		if entry.has("range") {
			written = append(written, entry.written())
		}
	}
	return written, nil
}

func (s configSection) written() RangeSpec {
	return RangeSpec{
		Range: s.text("range"), Start: s.text("range_start"), End: s.text("range_end"),
		Exclude: s.texts("exclude"), Gateway: s.text("gateway"), Key: s.path,
	}
}

// HostBits answers the network that an exclude entry stands for if it is written
// with host bits: 10.0.0.9/29 excludes all of 10.0.0.8/29.
func HostBits(exclude string) (network string, found bool) {
	p, err := ParsePrefix(exclude)
	if err != nil || p == p.Masked() {
		return "", false
	}
	return p.Masked().String(), true
}
