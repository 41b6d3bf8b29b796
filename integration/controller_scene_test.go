package integration

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// patience is how long a test waits for what has to come. It is no measure.
const patience = time.Minute

// sliceScene is a cluster of its own with controllers: they look at the nodes and
// definitions of the whole cluster.
type sliceScene struct {
	*cluster
	watched *testenv.Proxy // before the controllers
	config  string         // their kubeconfig
}

func newSliceScene(t *testing.T) *sliceScene {
	t.Helper()
	cp := testenv.Start(t)
	cp.ApplyCRDs(t, "../manifests/crds")
	return newSliceSceneOn(t, cp)
}

func newSliceSceneOn(t *testing.T, cp *testenv.ControlPlane) *sliceScene {
	t.Helper()
	cp.ApplyCRDs(t, "../kube/testdata/definitions")
	s := &sliceScene{cluster: newClusterOn(t, cp), watched: cp.Proxy(t)}
	s.config = cp.Kubeconfig(t, testenv.Options{Namespace: s.namespace, Via: s.watched})
	return s
}

// controller is a running one.
type controller struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  testenv.Buffer
}

// control starts a controller, which ends with the test.
func (s *sliceScene) control(arguments ...string) *controller {
	s.t.Helper()
	return s.controlAs(suite.Binary, append([]string{"controller", "--listen", ""}, arguments...)...)
}

// controlAs starts a controller from a file, which ends with the test.
func (s *sliceScene) controlAs(file string, arguments ...string) *controller {
	s.t.Helper()
	r := &controller{done: make(chan struct{})}
	r.cmd = exec.Command(file, append(arguments, "--kubeconfig", s.config)...)
	r.cmd.Stderr = &r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { _ = r.cmd.Wait(); close(r.done) }()
	s.t.Cleanup(func() {
		r.kill()
		if s.t.Failed() {
			s.t.Logf("controller %d:\n%s", r.cmd.Process.Pid, r.log.String())
		}
	})
	return r
}

func (r *controller) kill() {
	_ = r.cmd.Process.Kill()
	<-r.done
}

func (s *sliceScene) addNodes(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.cp.Must(s.t).Create("/api/v1/nodes", Object{"metadata": Object{"name": name}})
	}
}

func (s *sliceScene) removeNode(name string) {
	s.t.Helper()
	s.cp.Must(s.t).Delete("/api/v1/nodes/" + name)
}

func definitionsIn(namespace string) string {
	return "/apis/k8s.cni.cncf.io/v1/namespaces/" + namespace + "/network-attachment-definitions"
}

// define makes a definition in a namespace; the configuration is JSON, or text as it is.
func (s *sliceScene) define(namespace, name string, config any) {
	s.t.Helper()
	s.cp.Must(s.t).Create(definitionsIn(namespace), Object{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
		"metadata": Object{"name": name}, "spec": Object{"config": string(encode(s.t, config))},
	})
}

func (s *sliceScene) redefine(namespace, name string, config any) {
	s.t.Helper()
	s.cp.Must(s.t).Patch(definitionsIn(namespace)+"/"+name, testenv.MergePatch, Object{"spec": Object{"config": string(encode(s.t, config))}})
}

func (s *sliceScene) undefine(namespace, name string) {
	s.t.Helper()
	s.cp.Must(s.t).Delete(definitionsIn(namespace) + "/" + name)
}

// slicesOf is the list of a network as stored: "slice=node", in its order.
func (s *sliceScene) slicesOf(list string) []string {
	s.t.Helper()
	var object Object
	err := s.cp.Client().Get(s.t.Context(), s.path("nodeslicepools")+"/"+list, &object)
	if testenv.StatusCode(err) == 404 {
		return nil
	}
	if err != nil {
		s.t.Fatal(err)
	}
	entries, _ := object.Field("status", "allocations").([]any)
	found := []string{}
	for _, entry := range entries {
		e := Object(entry.(map[string]any))
		found = append(found, e.String("sliceRange")+"="+e.String("nodeName"))
	}
	return found
}

// summaryOf is what the status of a list says to people.
func (s *sliceScene) summaryOf(list string) string {
	s.t.Helper()
	status, _ := s.cp.Must(s.t).Get(s.path("nodeslicepools") + "/" + list).Field("status").(map[string]any)
	text := fmt.Sprintf("%v slices, %v assigned, %v free, %v waiting", status["slices"], status["assigned"], status["free"], status["waiting"])
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		c := Object(c.(map[string]any))
		text += ", " + c.String("type") + "=" + c.String("status")
	}
	return text
}

// ownersOf is the node of each slice that is somebody's.
func (s *sliceScene) ownersOf(list string) map[string]string {
	s.t.Helper()
	owners := map[string]string{}
	for _, entry := range s.slicesOf(list) {
		for i := range entry {
			if entry[i] == '=' && i+1 < len(entry) {
				if other, twice := owners[entry[:i]]; twice {
					s.t.Errorf("slice %s of %s is listed for %s and %s", entry[:i], list, other, entry[i+1:])
				}
				owners[entry[:i]] = entry[i+1:]
			}
		}
	}
	return owners
}

// sliceOf waits until a node has a slice, and answers it.
func (s *sliceScene) sliceOf(list, node string) string {
	s.t.Helper()
	found := ""
	s.eventually("node "+node+" has a slice of "+list, func() bool {
		for part, owner := range s.ownersOf(list) {
			if owner == node {
				found = part
			}
		}
		return found != ""
	})
	return found
}

func (s *sliceScene) eventually(what string, f func() bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("%s: it never came", what)
		}
	}
}

// settled waits until the list is exactly this.
func (s *sliceScene) settled(list string, want ...string) {
	s.t.Helper()
	var got []string
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if got = s.slicesOf(list); fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s is %v, want %v", list, got, want)
		}
	}
}

// quiet waits until the controllers have written nothing for a while.
func (s *sliceScene) quiet() {
	s.t.Helper()
	for n := -1; n != s.watched.Count(writes()); time.Sleep(time.Second) {
		n = s.watched.Count(writes())
	}
}

// warnings are the messages of the events on a definition.
func (s *sliceScene) warnings(namespace, name string) []string {
	s.t.Helper()
	var texts []string
	for _, e := range s.cp.Must(s.t).List("/api/v1/namespaces/" + namespace + "/events") {
		if e.String("involvedObject", "kind") == "NetworkAttachmentDefinition" && e.String("involvedObject", "name") == name {
			texts = append(texts, e.String("message"))
		}
	}
	return texts
}
