package ipcontrol

import (
	"context"
	"net/netip"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// compareOwn compares the ranges of the configuration with each other.
func (l *linter) compareOwn() {
	for i, a := range l.rows {
		for _, b := range l.rows[i+1:] {
			if a.cfg.NetworkName == b.cfg.NetworkName && meet(a.Range, b.Range) {
				l.say(levelWarning, "%s and %s overlap (%s and %s): a pod gets two addresses of one range", a.key, b.key, a.Range, b.Range)
			}
		}
	}
}

// compareCluster compares them with the other definitions of the cluster, and learns
// of the ranges that the cluster itself uses.
func (l *linter) compareCluster(ctx context.Context, a *access) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	v, err := l.look(ctx, a, false)
	if err != nil {
		l.warn("the cluster's definitions are not compared: %s", plain(err))
		return
	}
	for _, words := range v.missing() {
		l.warn("not compared: %s", words)
	}
	for _, d := range v.defined {
		if d.Definition.String() == l.self {
			continue
		}
		for _, theirs := range d.Ranges {
			for _, ours := range l.rows {
				l.compare(ours, d, theirs)
			}
		}
	}
	ranges, err := kube.ClusterRanges(ctx, a.client)
	if err != nil {
		l.warn("the cluster's own ranges are not compared: %s; name them with --pod-cidr and --service-cidr", plain(err))
	}
	l.taken = append(l.taken, ranges...)
}

// compare says what it means that two ranges meet. In one address space they are one
// pool, or protect each other; in two, each hands out the same addresses.
func (l *linter) compare(ours lintRange, d defined, theirs ipam.Range) {
	if !meet(ours.Range, theirs) {
		return
	}
	sameSpace := ours.cfg.NetworkName == d.NetworkName
	switch {
	case sameSpace && ours.Prefix == theirs.Prefix:
		l.say(levelNote, "%s: definition %s takes addresses from the same pool %s", ours.key, d.Definition, theirs.Prefix)
	case sameSpace && ours.cfg.Overlap && d.Overlap:
		l.say(levelNote, "%s: overlaps %s of definition %s; no address is handed out twice", ours.key, theirs, d.Definition)
	case sameSpace:
		l.say(levelWarning, "%s: overlaps %s of definition %s without overlap protection: both may hand out the same address; "+
			"set enable_overlapping_ranges in both", ours.key, theirs, d.Definition)
	default:
		l.say(levelWarning, "%s: overlaps %s of definition %s, which has another network_name (%q): both hand out the same addresses; "+
			"give them the same one unless the networks are apart", ours.key, theirs, d.Definition, d.NetworkName)
	}
}

// compareTaken compares with the ranges of pods and services. Many nodes make many:
// one of each kind is enough to know.
func (l *linter) compareTaken() {
	for _, ours := range l.rows {
		for _, t := range l.taken {
			if overlaps(ours.Prefix, t.Range) {
				l.say(levelError, "%s: %s overlaps %s, the cluster's range for %s: traffic to one ends at the other; choose another range",
					ours.key, ours.Prefix, t.Range, t.For)
				break
			}
		}
	}
}

// meet reports whether two ranges have an address in common that either hands out.
func meet(a, b ipam.Range) bool {
	return overlaps(a.Prefix, b.Prefix) && !a.Last.Less(b.First) && !b.Last.Less(a.First)
}

// overlaps answers what two ranges have in common, if anything.
func overlaps(a, b netip.Prefix) bool { return a.IsValid() && b.IsValid() && a.Overlaps(b) }
