package reclaim

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// perPool is how many records a pool of the load test has.
const perPool = 200

// Time and memory of clean-up in a cluster with many pods, each with a record. The
// figures are printed; only what is done is tested.
func TestLoad(t *testing.T) {
	text := os.Getenv("WHEREABOUTS_RECLAIM_LOAD")
	if text == "" {
		t.Skip("no WHEREABOUTS_RECLAIM_LOAD with a number of pods, such as 20000: it takes minutes and says nothing about what is right")
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < perPool {
		t.Fatalf("WHEREABOUTS_RECLAIM_LOAD is %q; want a number of at least %d", text, perPool)
	}
	w := newWorld(t)
	begin := time.Now()
	w.fill(t, n)
	t.Logf("%d pods and records made in %s", n, time.Since(begin).Round(time.Second))

	c := w.startWith(w.direct(), "--once", "--grace", "1s")
	<-c.done
	t.Logf("one run: %s", figures(c))
	if code := c.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, c.log.String())
	}
	c = w.startWith(w.direct(), "--schedule", rarely, "--grace", "1s").passes()
	peak := w.peak(c)
	t.Logf("watching, after the first pass: VmHWM %s", peak)
	err = w.cp.Client().Delete(t.Context(), podPath("load")+"/pod-0", Object{"gracePeriodSeconds": 0})
	if err != nil {
		t.Fatal(err)
	}
	took := w.eventually("the address of a pod that goes", func() string {
		if w.spec(w.namespace, reservations, "10.103.0.1") != nil {
			return "still reserved"
		}
		return ""
	})
	t.Logf("watching, after another pass (%s): VmHWM %s", took.Round(time.Millisecond), w.peak(c))
	c.signal(syscall.SIGTERM)
	<-c.done
	t.Logf("watching: %s", figures(c))
}

// direct is a kubeconfig past the proxy, which keeps what it has seen in mind.
func (w *world) direct() string { return w.kubeconfig }

// peak is the most memory that a process has had so far.
func (w *world) peak(c *child) string {
	w.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		w.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(data)
	if found == nil {
		w.Fatalf("no VmHWM in %s", data)
	}
	kB, _ := strconv.Atoi(string(found[1]))
	return fmt.Sprintf("%.1f MiB", float64(kB)/1024)
}

// figures are those of a process that has ended.
func figures(c *child) string {
	state := c.cmd.ProcessState
	most := state.SysUsage().(*syscall.Rusage).Maxrss // kB on Linux
	return fmt.Sprintf("%s CPU (user %s, system %s), most memory %.1f MiB",
		state.UserTime()+state.SystemTime(), state.UserTime(), state.SystemTime(), float64(most)/1024)
}

// fill makes pods that run, each with a record.
func (w *world) fill(t *testing.T, n int) {
	t.Helper()
	w.must().Create("/api/v1/namespaces", Object{"metadata": Object{"name": "load"}})
	work := make(chan int)
	var group sync.WaitGroup
	for range 4 * runtime.NumCPU() {
		group.Go(func() {
			for i := range work {
				if err := w.fillOne(i); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
	for p := range n / perPool {
		entries := Object{}
		for i := range perPool {
			entries[fmt.Sprint(i+1)] = Object{"id": loadContainer(p*perPool + i), "podref": fmt.Sprintf("load/pod-%d", p*perPool+i), "ifname": "net1", "gen": "0123abcd"}
		}
		w.seedPool(w.namespace, fmt.Sprintf("10.103.%d.0-24", p), fmt.Sprintf("10.103.%d.0/24", p), entries)
	}
}

func loadContainer(i int) string { return fmt.Sprintf("%064x", i) }

func (w *world) fillOne(i int) error {
	address := fmt.Sprintf("10.103.%d.%d", i/perPool, i%perPool+1)
	name := fmt.Sprintf("pod-%d", i)
	status := networkStatus(w, "net1", address)
	var made Object
	err := w.cp.Client().Create(w.Context(), podPath("load"), podObject(Object{"name": name, "annotations": Object{statusAnnotation: status}}, fmt.Sprintf("node-%d", i%200)), &made)
	if err != nil {
		return err
	}
	err = w.cp.Client().Patch(w.Context(), podPath("load")+"/"+name+"/status", testenv.MergePatch, Object{"status": Object{"phase": "Running"}}, nil)
	if err != nil {
		return err
	}
	return w.cp.Client().Create(w.Context(), w.path(reservations), reservationObject(address, Object{
		"podref": "load/" + name, "ifname": "net1", "containerid": loadContainer(i), "uid": made.String("metadata", "uid"),
		"node": fmt.Sprintf("node-%d", i%200), "network": "load", "range": fmt.Sprintf("10.103.%d.0/24", i/perPool), "since": stamp(longAgo()),
	}), nil)
}
