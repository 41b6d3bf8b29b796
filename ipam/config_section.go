package ipam

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// configSection is one JSON object of the configuration by the documented names
// of its keys. Unknown keys are left out.
type configSection struct {
	place  keyPlace
	path   string // in front of key names in messages: "", "kubernetes", "ipRanges[2]"
	values map[string]configValue
}

// configValue is what one key was given.
type configValue struct {
	key    *configKey
	label  string // the key as messages name it: "ipRanges[2].gateway"
	raw    json.RawMessage
	from   string         // path of the file it was read from; "" is the network configuration
	object *configSection // the object it is, if its keys are looked into
}

func (s configSection) get(name string) configValue { return s.values[name] }

// has reports whether a key is given and says something.
func (s configSection) has(name string) bool { return !jsonEmpty(s.values[name].raw) }

// text, flag and texts read values that have passed check. Absent ones are zero.
func (s configSection) text(name string) string { return s.values[name].text() }

func (v configValue) text() string {
	var text string
	_ = json.Unmarshal(v.raw, &text)
	return text
}

func (s configSection) flag(name string, absent bool) bool {
	if !s.has(name) {
		return absent
	}
	var flag bool
	_ = json.Unmarshal(s.values[name].raw, &flag)
	return flag
}

func (s configSection) texts(name string) []string {
	v := s.values[name]
	if jsonKindOf(v.raw) == jsonString { // one address instead of a list of them
		return []string{v.text()}
	}
	var list []string
	_ = json.Unmarshal(v.raw, &list)
	return list
}

// objects returns the entries of a list of objects that has passed check.
func (p *configParser) objects(s configSection, name string, entries keyPlace) []configSection {
	v := s.get(name)
	list, _ := jsonElements(v.raw)
	var out []configSection
	for i, raw := range list {
		entry := p.section(entries, fmt.Sprintf("%s[%d]", v.label, i), v.from, raw)
		p.check(entry)
		out = append(out, entry)
	}
	return out
}

// section reads an object, warns about what is unknown or written twice in it,
// and looks into the objects it holds.
func (p *configParser) section(in keyPlace, path, from string, raw json.RawMessage) configSection {
	s := configSection{place: in, path: path, values: map[string]configValue{}}
	spelled := map[string]string{}
	list, _ := jsonMembers(raw)
	for _, m := range list {
		k := findKey(in, m.name)
		if k == nil {
			p.unknownKey(s, m.name, from)
			continue
		}
		if before, twice := spelled[k.name]; twice {
			counts := m.name
			if before == k.name {
				counts = before
			}
			p.warnf("%s is written twice%s, as %q and as %q: %q counts; remove the other",
				joinKey(path, k.name), inFlatFile(from), before, m.name, counts)
			if counts != m.name {
				continue
			}
		}
		spelled[k.name] = m.name
		s.values[k.name] = p.value(k, path, from, m.raw)
	}
	return s
}

func (p *configParser) value(k *configKey, path, from string, raw json.RawMessage) configValue {
	v := configValue{key: k, label: joinKey(path, k.name), raw: raw, from: from}
	if k.inner != anywhere && jsonKindOf(raw) == jsonObject {
		inner := p.section(k.inner, v.label, from, raw)
		v.object = &inner
	}
	return v
}

func (p *configParser) unknownKey(s configSection, name, from string) {
	if !s.place.ours() {
		return
	}
	label := joinKey(s.path, shortenValue(name))
	if near := nearestKey(s.place, name); near != "" {
		p.warnf("unknown key %q%s is ignored; did you mean %q?", label, inFlatFile(from), near)
		return
	}
	p.warnf("unknown key %q%s is ignored; remove it", label, inFlatFile(from))
}

// check takes values of the wrong type out of a section, the objects in it
// included. They are reported in the order of the table of keys.
func (p *configParser) check(s configSection) {
	for i := range configKeys {
		v, given := s.values[configKeys[i].name]
		if !given || v.key != &configKeys[i] {
			continue
		}
		if v.object != nil {
			p.check(*v.object)
			continue
		}
		if jsonEmpty(v.raw) {
			continue
		}
		if err := v.check(); err != nil {
			p.report(v, err)
			delete(s.values, v.key.name)
		}
	}
}

// check answers an error if the value is not of the key's type.
func (v configValue) check() error {
	switch v.key.typ {
	case aStringList, anObjectList:
		return v.checkList()
	case anIPList:
		if jsonKindOf(v.raw) == jsonString {
			return nil
		}
		return v.checkList()
	case aPrefixLength:
		if k := jsonKindOf(v.raw); k == jsonString || k == jsonNumber {
			return nil
		}
	case aNumber:
		if _, err := strconv.ParseInt(strings.TrimSpace(string(v.raw)), 10, 64); err == nil {
			return nil
		}
	case aString:
		if jsonKindOf(v.raw) == jsonString {
			return nil
		}
	case aBool:
		if jsonKindOf(v.raw) == jsonBool {
			return nil
		}
	case anObject:
		if jsonKindOf(v.raw) == jsonObject {
			return nil
		}
	case anything:
		return nil
	}
	return v.wrongType(v.label, v.raw)
}

func (v configValue) checkList() error {
	list, ok := jsonElements(v.raw)
	if !ok {
		return v.wrongType(v.label, v.raw)
	}
	want := jsonString
	if v.key.typ == anObjectList {
		want = jsonObject
	}
	for i, raw := range list {
		if jsonKindOf(raw) != want {
			return v.wrongType(fmt.Sprintf("%s[%d]", v.label, i), raw)
		}
	}
	return nil
}

func joinKey(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
