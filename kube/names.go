package kube

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// Names of objects are shared with older implementations, bit for bit: another
// name for the same range would be a second pool, and its addresses would be
// handed out twice. So a name that the API server accepts never changes; only
// what it would refuse is replaced.

// maxName is the most characters the API server allows in an object's name.
const maxName = 253

// hashDigits is how many hexadecimal digits keep apart what looks the same after
// its characters were replaced.
const hashDigits = 6

// PoolName is the name of the object that holds a pool:
// [network-][node-]range, with ':' and '/' in the range as '-'.
func PoolName(id ipam.PoolID) string {
	return objectName(dashed(id.Range.Masked().String()), id.Network, id.Node)
}

// ReservationName is the name of the object that claims an address for a
// network: [network-]address, with ':' as '-'. An address that ends in ':' gets
// a '0' there first.
func ReservationName(network string, a netip.Addr) string {
	text := a.Unmap().WithZone("").String()
	if strings.HasSuffix(text, ":") {
		text += "0"
	}
	return objectName(dashed(text), network)
}

// SlicePoolName is the name of the object that lists the slices of a range: the
// network's, and behind it "-range" unless the range is the first of its network.
func SlicePoolName(list ipam.SliceList) string {
	if list.First {
		return wholeName(list.Network)
	}
	return objectName(dashed(list.Range.Masked().String()), list.Network)
}

func dashed(s string) string { return strings.NewReplacer(":", "-", "/", "-").Replace(s) }

// objectName joins the parts that are not empty and the tail with '-'. A part
// that the API server would refuse there is sanitised, and parts are shortened,
// the first one first, until the name fits.
func objectName(tail string, parts ...string) string {
	var given []string
	for _, part := range parts {
		if part != "" {
			given = append(given, part)
		}
	}
	fitting := make([]string, 0, len(given)+1)
	for i, part := range given {
		if !acceptable(part, i == 0) {
			part = sanitise(part)
		}
		fitting = append(fitting, part)
	}
	fitting = append(fitting, tail)
	for i, part := range given {
		if over := len(joined(fitting)) - maxName; over > 0 {
			fitting[i] = shorten(fitting[i], part, over)
		}
	}
	return joined(fitting)
}

// wholeName is the name of an object that has nothing but the one part.
func wholeName(part string) string {
	name := part
	if part == "" || !acceptable(part, true) || !alphanumeric(part, len(part)-1) {
		name = sanitise(part)
	}
	if over := len(joined([]string{name})) - maxName; over > 0 {
		name = shorten(name, part, over)
	}
	return joined([]string{name})
}

func joined(parts []string) string {
	name := strings.Join(parts, "-")
	if strings.HasPrefix(name, "-") {
		return "0" + name
	}
	return name
}

// acceptable reports whether a part can stay as it is in front of "-tail". The
// rules of names look at neighbouring characters only, and a part's neighbours
// are '-' or the start of the name.
func acceptable(part string, first bool) bool {
	if first && part[0] == '-' {
		return false
	}
	for i := range len(part) {
		if part[i] != '-' && !alphanumeric(part, i) && !innerDot(part, i) {
			return false
		}
	}
	return true
}

// sanitise makes an acceptable part, but for a leading '-'. It ends in a hash of
// the original, so that a.b, a_b and A_B stay apart.
func sanitise(original string) string {
	clean := strings.Map(func(r rune) rune {
		if r == '.' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(original))
	b := []byte(clean)
	for i := range b {
		if b[i] == '.' && !innerDot(clean, i) {
			b[i] = '-'
		}
	}
	return string(b) + "-" + hash(original)
}

// shorten makes a part over characters shorter, if it has as many: it keeps the
// start and ends in the hash of the original. A hash that is there already is
// within what is cut off.
func shorten(part, original string, over int) string {
	sum := hash(original)
	if len(part) <= len(sum) {
		return part
	}
	keep := max(0, len(part)-over-len("-"+sum))
	if keep == 0 {
		return sum
	}
	// A dot at the cut would have no alphanumeric behind it.
	return strings.TrimSuffix(part[:keep], ".") + "-" + sum
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:hashDigits]
}

func alphanumeric(s string, i int) bool {
	return i >= 0 && i < len(s) && ('a' <= s[i] && s[i] <= 'z' || '0' <= s[i] && s[i] <= '9')
}

// innerDot reports whether s[i] is a dot between two alphanumerics.
func innerDot(s string, i int) bool {
	return s[i] == '.' && alphanumeric(s, i-1) && alphanumeric(s, i+1)
}
