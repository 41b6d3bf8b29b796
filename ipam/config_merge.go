package ipam

// mergeConfig lays the ipam object of a network configuration over the flat file:
// what is written there wins, a false or a 0 too; null, "", [] and {} do not
// count as written. Objects are merged key by key, a list is one value.
func mergeConfig(inline, flat configSection) configSection {
	out := configSection{place: inline.place, path: inline.path, values: map[string]configValue{}}
	for name, v := range flat.values {
		out.values[name] = v
	}
	for name, v := range inline.values {
		if jsonEmpty(v.raw) {
			continue
		}
		if below := flat.values[name]; v.object != nil && below.object != nil {
			both := mergeConfig(*v.object, *below.object)
			v.object = &both
		}
		out.values[name] = v
	}
	return out
}
