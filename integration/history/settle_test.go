package history

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// settle makes sure, when all has come to rest, that exactly the survivors have
// records, and that nothing is left when they have gone, too.
func (w *world) settle() {
	w.land()
	worker := w.worker(5000)
	for s, known := range w.register.snapshot() {
		if !known {
			worker.del(s) // whoever had forgotten it remembers
		}
	}
	w.replay()
	told := map[place]bool{}
	w.compare("while some pods live", told)
	for _, s := range w.survivors.list {
		worker.check(s)
	}
	for _, s := range w.survivors.list {
		worker.del(s)
	}
	w.replay()
	left := w.compare("when all pods have gone", told)
	fmt.Printf("left to reconcile: %d\n", len(left))
	for _, line := range left {
		fmt.Println(line)
	}
	if most := w.stats.count(processesKilled) + w.stats.count(lateWrites); len(left) > most {
		w.ledger.find(fmt.Sprintf("%d records are left to reconcile after %d kills and late writes", len(left), most))
	}
}

// land waits until no request is under way, late writes included.
func (w *world) land() {
	for range 1000 {
		underWay := 0
		for _, n := range w.nodes {
			underWay += n.underWay()
		}
		if underWay == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	const longestDelay = 3 * time.Second // the harvest forgets what is under way
	time.Sleep(longestDelay)
}

// replay has each node make one more call, which carries out what is queued there.
func (w *world) replay() {
	for _, n := range w.nodes {
		queued := n.queued()
		w.stats.happened("releases still queued at the end", queued)
		if left := n.replay(w.networks[0]); left > 0 {
			w.ledger.find(fmt.Sprintf("%d of %d releases are still queued on %s after another call there", left, queued, n.name))
		}
	}
}

// replay makes a call that has nothing else to do than to carry out queued releases,
// or some of them if there are many, and answers how many are left.
func (n *node) replay(net *network) int {
	const beside = 50 // the plugin carries out no more beside a call
	nobody := &pod{namespace: "default", name: "nobody", uid: "nobody", node: n}
	for range 1 + n.queued()/beside {
		p, err := n.start(call{verb: "DEL", network: net, pod: nobody, container: "nobody", ifName: "net1"})
		if err == nil {
			p.wait()
		}
	}
	return n.queued()
}

// queued counts the files in the node's release queue; what a killed process had not
// finished writing is none of it.
func (n *node) queued() int {
	files, _ := os.ReadDir(filepath.Join(n.stateDir, "releases")) // none was needed
	return len(slices.DeleteFunc(files, func(f os.DirEntry) bool { return strings.HasPrefix(f.Name(), ".") }))
}

// compare looks for differences between what is stored and what is held, and answers
// what is left to reconcile, with the reasons. What it has told already it does not
// tell again.
func (w *world) compare(when string, told map[place]bool) []string {
	all, unknown, err := w.store.read(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	if len(unknown) > 0 {
		w.ledger.find(fmt.Sprintf("%s records exist that no network can have made: %v", when, unknown))
	}
	living := map[string]bool{} // by uid
	for _, h := range w.ledger.openHoldings() {
		living[h.uid] = true
		if wrong := w.excused(all[h.place]).contradicts(h); wrong != "" {
			w.ledger.find(fmt.Sprintf("%s: %s holds %s, but %s", when, h.holder, h.place, wrong), h.place)
		}
		delete(all, h.place)
	}
	var left []string
	for p, s := range all {
		if wrong := w.judge(s, living); wrong != "" && !told[p] {
			w.ledger.find(fmt.Sprintf("%s there is left of %s: %s", when, p, wrong), p)
			told[p] = true
		}
		left = append(left, fmt.Sprintf("  %s: %s", p, w.describe(s)))
	}
	slices.Sort(left)
	return left
}

// describe says what is left of a place, and why.
func (w *world) describe(s *stored) string {
	return fmt.Sprintf("%s of %s (%s)", s.kind(), strings.Join(s.containers(), " and "), strings.Join(w.reasons(s), ", "))
}

func (w *world) reasons(s *stored) []string {
	var reasons []string
	for _, container := range s.containers() {
		reasons = append(reasons, w.ledger.excusesOf(container)...)
	}
	return reasons
}

// judge says why records without a holder must not be there; nothing if they may.
func (w *world) judge(s *stored, living map[string]bool) string {
	for _, container := range s.containers() {
		if uid, _, _ := strings.Cut(container, "-c"); living[uid] {
			return w.describe(s) + ", whose pod lives and holds something else"
		}
	}
	reasons := w.reasons(s)
	switch {
	case len(reasons) == 0:
		return w.describe(s) + ", for no reason"
	case len(s.entries) > 0 && !slices.Contains(reasons, lateWrite):
		return w.describe(s) + ", whose DEL has succeeded since"
	default:
		return ""
	}
}
