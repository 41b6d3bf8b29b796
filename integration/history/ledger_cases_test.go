package history

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// told is one thing that happens to a holder in a case of TestLedger.
type told struct {
	holder holder
	gets   []string // addresses, with "@" and the address space if it is not the default
	ends   bool
}

func somebody(uid, container string) holder {
	return holder{owner{uid, "net1"}, "default/" + uid, container}
}

func (h holder) on(ifName string) holder       { h.ifName = ifName; return h }
func (h holder) gets(addresses ...string) told { return told{holder: h, gets: addresses} }
func (h holder) goes() told                    { return told{holder: h, ends: true} }

func TestLedgerFindsWhatMustNotHappen(t *testing.T) {
	a, b := somebody("a", "a-c1"), somebody("b", "b-c1")
	again := somebody("a", "a-c2") // the same pod in a new container
	reborn := a                    // another pod of the same name
	reborn.uid, reborn.container = "a2", "a2-c1"
	tests := map[string]struct {
		story []told
		want  string // in the one finding; "" for none
	}{
		"two pods, two addresses":                   {[]told{a.gets("10.0.0.1"), b.gets("10.0.0.2")}, ""},
		"one after the other":                       {[]told{a.gets("10.0.0.1"), a.goes(), b.gets("10.0.0.1")}, ""},
		"two pods at once":                          {[]told{a.gets("10.0.0.1"), b.gets("10.0.0.1")}, "10.0.0.1 is held twice"},
		"the first goes too late":                   {[]told{a.gets("10.0.0.1"), b.gets("10.0.0.1"), a.goes()}, "held twice"},
		"one of two addresses":                      {[]told{a.gets("10.0.0.1", "fd00::1"), b.gets("10.0.0.2", "fd00::1")}, "fd00::1 is held twice"},
		"two address spaces":                        {[]told{a.gets("10.0.0.1"), b.gets("10.0.0.1@other")}, ""},
		"within another address space":              {[]told{a.gets("10.0.0.1@other"), b.gets("10.0.0.1@other")}, "10.0.0.1 of network other is held twice"},
		"two interfaces of one pod":                 {[]told{a.gets("10.0.0.1"), a.on("net2").gets("10.0.0.1")}, "held twice"},
		"another pod of the same name":              {[]told{a.gets("10.0.0.1"), reborn.gets("10.0.0.1")}, "held twice"},
		"a new container of the pod":                {[]told{a.gets("10.0.0.1"), a.goes(), again.gets("10.0.0.1"), b.gets("10.0.0.2")}, ""},
		"another pod after a new container":         {[]told{a.gets("10.0.0.1"), a.goes(), again.gets("10.0.0.1"), b.gets("10.0.0.1")}, "held twice"},
		"the same container asks again":             {[]told{a.gets("10.0.0.1"), a.gets("10.0.0.1")}, ""},
		"and is told something else":                {[]told{a.gets("10.0.0.1"), a.gets("10.0.0.2")}, "instead of"},
		"the same container comes back":             {[]told{a.gets("10.0.0.1"), a.goes(), a.gets("10.0.0.2")}, ""},
		"the end of one interface is not another's": {[]told{a.gets("10.0.0.1"), a.on("net2").goes(), b.gets("10.0.0.1")}, "held twice"},
		"the end of an old container is not the new one's": {
			[]told{a.gets("10.0.0.1"), a.goes(), again.gets("10.0.0.1"), a.goes(), b.gets("10.0.0.1")}, "held twice",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := tell(test.story)
			switch {
			case test.want == "" && len(l.findings) > 0:
				t.Errorf("found %q, want nothing", l.findings)
			case test.want != "" && (len(l.findings) != 1 || !strings.Contains(l.findings[0], test.want)):
				t.Errorf("found %q, want one finding with %q", l.findings, test.want)
			}
		})
	}
}

// tell lets a ledger hear a story in which each event takes a second.
func tell(story []told) *ledger {
	var now time.Duration
	l := newLedger(func() time.Duration { now += time.Second; return now })
	for _, e := range story {
		if e.ends {
			l.ends(e.holder, "DEL starts")
			continue
		}
		var places []place
		for _, text := range e.gets {
			address, space, _ := strings.Cut(text, "@")
			places = append(places, place{space, netip.MustParseAddr(address)})
		}
		l.granted(e.holder, &network{}, places)
	}
	return l
}

func TestLedgerTellsTheHistoryOfAnAddressInOrder(t *testing.T) {
	a, b := somebody("a", "a-c1"), somebody("b", "b-c1")
	var now time.Duration
	l := newLedger(func() time.Duration { now += time.Second; return now })
	at := place{"", netip.MustParseAddr("10.0.0.1")}
	l.wire = func(place) []wire { return []wire{{at: 1500 * time.Millisecond, what: "POST reservations"}} }
	var report string
	l.report = func(text string) { report = text }
	l.granted(a, &network{}, []place{at})
	l.note("elsewhere-c1", "has nothing to do with it", "")
	l.granted(b, &network{}, []place{at})
	from := 0
	for _, want := range []string{"held twice", "history of 10.0.0.1", "a-c1 is told", "POST reservations", "b-c1 is told"} {
		i := strings.Index(report[from:], want)
		if i < 0 {
			t.Fatalf("%q is missing, or comes too early, in\n%s", want, report)
		}
		from += i
	}
	if strings.Contains(report, "elsewhere") {
		t.Errorf("the history of an address tells of another:\n%s", report)
	}
}

// holdingOf is what the audit compares records with.
func holdingOf(h holder) holding {
	return holding{place: place{"", netip.MustParseAddr("10.0.0.1")}, holder: h, network: &network{}}
}

func TestAuditFindsWhatContradictsAHolding(t *testing.T) {
	entry := Object{"id": "a-c1", "podref": "default/a", "ifname": "net1", "gen": "x"}
	reservation := Object{"containerid": "a-c1", "podref": "default/a", "ifname": "net1", "uid": "a"}
	pool := func(entry Object) map[string]Object { return map[string]Object{"pool": entry} }
	tests := map[string]struct {
		stored      *stored
		unprotected bool
		want        string
	}{
		"as it should be":         {&stored{pool(entry), reservation}, false, ""},
		"nothing":                 {nil, false, "nothing is recorded"},
		"no entry":                {&stored{nil, reservation}, false, "0 pools"},
		"two entries":             {&stored{map[string]Object{"pool": entry, "other": entry}, reservation}, false, "2 pools"},
		"another container":       {&stored{pool(with(entry, Object{"id": "a-c2"})), reservation}, false, "pool pool says"},
		"another pod":             {&stored{pool(with(entry, Object{"podref": "default/b"})), reservation}, false, "pool pool says"},
		"another interface":       {&stored{pool(with(entry, Object{"ifname": "net2"})), reservation}, false, "pool pool says"},
		"no reservation":          {&stored{pool(entry), nil}, false, "reservation says"},
		"another's reservation":   {&stored{pool(entry), with(reservation, Object{"containerid": "b-c1"})}, false, "reservation says"},
		"another uid":             {&stored{pool(entry), with(reservation, Object{"uid": "a2"})}, false, "reservation says"},
		"no reservation required": {&stored{pool(entry), nil}, true, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := holdingOf(somebody("a", "a-c1"))
			h.network.unprotected = test.unprotected
			got := test.stored.contradicts(h)
			if got == "" != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
