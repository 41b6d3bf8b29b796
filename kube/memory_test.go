package kube

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// manyObjects is how many pods and records a cluster has whose clean-up stays below
// 64 MiB.
const manyObjects = 20000

// crowd serves a cluster of so many pods, each with a record, in pages.
func crowd(w http.ResponseWriter, r *http.Request) {
	var item func(io.Writer, int)
	n := manyObjects
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/pods"):
		item = writePod
	case strings.HasSuffix(path, "/"+reservationResource):
		item = writeReservation
	case strings.HasSuffix(path, "/"+poolResource):
		item, n = writePool, manyObjects/200
	default:
		n = 0
	}
	first, next := 0, ""
	_, _ = fmt.Sscan(r.URL.Query().Get("continue"), &first)
	last := n
	if size := 0; n > 0 {
		_, _ = fmt.Sscan(r.URL.Query().Get("limit"), &size)
		if last = first + size; last < n {
			next = fmt.Sprint(last)
		}
		last = min(last, n)
	}
	fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`, next)
	for i := first; i < last; i++ {
		if i > first {
			fmt.Fprint(w, ",")
		}
		item(w, i)
	}
	fmt.Fprint(w, "]}")
}

func namesOf(i int) (pod, uid, node, container, address string) {
	return fmt.Sprintf("deployment-%d-5d4f7c9b6d-abcde", i), fmt.Sprintf("1b4e28ba-2fa1-11d2-883f-%012x", i),
		fmt.Sprintf("node-%d.example.com", i%200), fmt.Sprintf("%064x", i), fmt.Sprintf("10.%d.%d.%d", i/20000, i/200, i%200+1)
}

// The parts of a pod that clean-up does not need are most of it.
var ballast = fmt.Sprintf(`{"name":"c","image":"registry.example.com/app:1","env":[%s{"name":"z","value":"z"}]}`,
	strings.Repeat(`{"name":"SOME_VARIABLE","value":"with a value of some length"},`, 40))

func writePod(w io.Writer, i int) {
	pod, uid, node, _, address := namesOf(i)
	fmt.Fprintf(w, `{"metadata":{"name":%q,"namespace":"ns-%d","uid":%q,"resourceVersion":"%d","creationTimestamp":"2024-05-01T10:00:00Z",
		"labels":{"app":"x"},"annotations":{"k8s.v1.cni.cncf.io/network-status":"[{\"ips\":[\"10.244.1.%d\"]},{\"ips\":[\"%s\"]}]"},
		"managedFields":[{"manager":"kubelet","fieldsV1":{"f:status":{}}}]},
		"spec":{"nodeName":%q,"containers":[%s]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`,
		pod, i%50, uid, i, i%250, address, node, ballast)
}

func writeReservation(w io.Writer, i int) {
	pod, uid, node, container, address := namesOf(i)
	fmt.Fprintf(w, `{"metadata":{"name":%q,"namespace":"kube-system","uid":%q,"resourceVersion":"%d"},"spec":{"podref":"ns-%d/%s","ifname":"net1",
		"containerid":%q,"uid":%q,"node":%q,"network":"net","range":"10.0.%d.0/24","since":"2024-05-01T10:00:00Z"}}`,
		address, uid, i, i%50, pod, container, uid, node, i/200)
}

func writePool(w io.Writer, p int) {
	fmt.Fprintf(w, `{"metadata":{"name":"10.0.%d.0-24","namespace":"kube-system","resourceVersion":"1"},"spec":{"range":"10.0.%d.0/24","allocations":{`, p, p)
	for o := range 200 {
		pod, _, _, container, _ := namesOf(200*p + o)
		if o > 0 {
			fmt.Fprint(w, ",")
		}
		fmt.Fprintf(w, `"%d":{"id":%q,"podref":"ns-%d/%s","ifname":"net1","gen":"01234567"}`, o+1, container, (200*p+o)%50, pod)
	}
	fmt.Fprint(w, "}}}")
}

func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one found to be dead
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// What is kept of a cluster, not what passes through, has to be small: the collector
// lets the heap grow to twice what is alive.
func TestAClusterIsSmallInMemory(t *testing.T) {
	client := clientOf(t, crowd)
	before := liveHeap()
	picture, err := ReadCluster(t.Context(), client, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := picture.Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	snapshot := all["kube-system"]
	records := 0
	for _, pool := range snapshot.Pools {
		for _, r := range pool.Records {
			if r.UID != "" {
				records++
			}
		}
	}
	if records != manyObjects || len(snapshot.Reservations) != manyObjects {
		t.Fatalf("got %d records with details and %d reservations", records, len(snapshot.Reservations))
	}
	pod, uid, _, _, _ := namesOf(7)
	if p, err := picture.Pod(t.Context(), "ns-7", pod); err != nil || p == nil || p.UID != uid {
		t.Fatalf("got pod %+v, %v", p, err)
	}
	each := (liveHeap() - before) / manyObjects
	t.Logf("%d bytes for a pod with a record and a reservation", each)
	if each > 1800 {
		t.Errorf("%d bytes for a pod with a record and a reservation, want 1800 at the most", each)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(picture)
}

// BenchmarkPodMemory measures what is kept of a pod.
func BenchmarkPodMemory(b *testing.B) {
	client := clientOf(b, crowd)
	for b.Loop() {
		before := liveHeap()
		c := newCluster(nil, func() {})
		if err := listAgain(b.Context(), client, podCollection, c.pods); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(liveHeap()-before)/manyObjects, "B/pod")
		runtime.KeepAlive(c)
	}
}
