package ipcontrol

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// problemKind is the class of a problem, for machines.
type problemKind string

// The kinds beside those of ipam.Check, whose names they share.
const (
	kindOrphan         problemKind = "orphan"
	kindUnrecorded     problemKind = "pod-without-record"
	kindUnreadablePool problemKind = "unreadable-pool"
	kindQueued         problemKind = "release-queued"
	kindQueueBroken    problemKind = "release-unreadable"
)

// problem is one thing that is wrong.
type problem struct {
	Kind      problemKind `json:"kind"`
	Namespace string      `json:"namespace,omitempty"` // of the objects concerned
	Network   string      `json:"network,omitempty"`   // network_name
	Pool      string      `json:"pool,omitempty"`      // name of its object
	Address   string      `json:"address,omitempty"`
	Pod       string      `json:"pod,omitempty"`    // namespace/name, of the holder
	Reason    string      `json:"reason,omitempty"` // of an orphan, as the clean-up names it
	Text      string      `json:"text"`
	Remedy    string      `json:"remedy"`
	// Safe says that --fix and the clean-up see to it by themselves.
	Safe bool `json:"safe"`

	at netip.Addr
}

func (p *problem) line() string {
	switch {
	case p.Namespace == "" || p.Kind == kindUnreadablePool:
		return p.Text
	case p.Pool != "":
		return "pool " + p.Namespace + "/" + p.Pool + ": " + p.Text
	}
	return "namespace " + p.Namespace + ": " + p.Text
}

// words are the heading of a kind and what an operator does about it.
func (k problemKind) words() (title, remedy string) {
	switch k {
	case problemKind(ipam.FindingDuplicate):
		return "addresses recorded twice",
			"two pods may use one address: restart the pod that got it last; give overlapping ranges the same network_name and enable_overlapping_ranges"
	case problemKind(ipam.FindingHalfRecord):
		return "records without a reservation",
			"another range may hand the address out: check --fix, or the clean-up, completes it while its pod shows the address"
	case problemKind(ipam.FindingBareReservation):
		return "reservations without a record",
			"the address is neither used nor handed out: check --fix, or the clean-up, frees or completes it"
	case problemKind(ipam.FindingDisagree):
		return "reservations of another owner than the record",
			"check --fix frees the half whose pod is gone; if both live, restart the pod whose network status does not show the address"
	case problemKind(ipam.FindingOutside):
		return "records outside the range of their pool",
			"nobody can be given the address through this pool: make sure that no pod uses it and take the entry out of the object"
	case problemKind(ipam.FindingUnreadable):
		return "entries that cannot be read",
			"they are left as they are and may block an address: look at the object (kubectl get ippool NAME -o yaml) and take the entry out if no pod uses the address"
	}
	return k.moreWords()
}

func (k problemKind) moreWords() (title, remedy string) {
	switch k {
	case kindOrphan:
		return "records that no living pod holds", "check --fix, or the clean-up, frees them; `ip-control release` frees one"
	case kindUnrecorded:
		return "pods whose address is not recorded for them",
			"the address may be given to another pod: restart the pod, which then gets a recorded one, unless another address manager gave it this one"
	case kindUnreadablePool:
		return "pools that cannot be understood", "correct spec.range of the object, or delete the object if no pod has an address from it"
	case kindQueued:
		return "releases waiting on this node",
			"the datastore could not be reached: the next call of the plugin here, or `install` while it runs, carries them out; if they stay, look at its log"
	case kindQueueBroken:
		return "releases on this node that cannot be read",
			"the addresses are freed by the clean-up, once their pods are gone; then delete the files ending in .corrupt"
	}
	return string(k), ""
}

// kindOrder is the order of kinds in the output, the worst first.
var kindOrder = [...]problemKind{
	problemKind(ipam.FindingDuplicate), kindUnrecorded, problemKind(ipam.FindingDisagree), problemKind(ipam.FindingHalfRecord),
	problemKind(ipam.FindingBareReservation), kindOrphan, problemKind(ipam.FindingOutside), problemKind(ipam.FindingUnreadable),
	kindUnreadablePool, kindQueued, kindQueueBroken,
}

func sortProblems(all []problem) {
	slices.SortStableFunc(all, func(a, b problem) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kindOrder[:], a.Kind), slices.Index(kindOrder[:], b.Kind)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Network, b.Network), a.at.Compare(b.at), cmp.Compare(a.Text, b.Text),
		)
	})
}
