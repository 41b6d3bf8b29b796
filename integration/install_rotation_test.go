package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// rotationVariable asks for the long form: 500 ADDs and a new token each second for a
// minute.
const rotationVariable = "WHEREABOUTS_TOKEN_ROTATION"

// rotation gives an installer new tokens of a service account, as the kubelet does,
// and ends the old ones, as time does elsewhere: each is bound to a secret, and ends
// with it. A call that began with a token may finish with it.
type rotation struct {
	t       *testing.T
	c       *cluster
	account string // the service account's name
	mount   string // the directory that the installer sees
	tokens  []string

	mutex   sync.Mutex
	running *sync.WaitGroup // calls since the last rotation
	ends    chan func()     // of tokens that were replaced, in their order
	ended   sync.WaitGroup
}

func (c *cluster) rotate(t *testing.T, account string) *rotation {
	r := &rotation{t: t, c: c, account: account, mount: t.TempDir(), running: &sync.WaitGroup{}, ends: make(chan func(), 1000)}
	for _, name := range []string{"token", "ca.crt", "namespace"} {
		if err := os.Symlink("..data/"+name, filepath.Join(r.mount, name)); err != nil {
			t.Fatal(err)
		}
	}
	r.ended.Go(func() {
		for end := range r.ends {
			end()
		}
	})
	r.publish()
	return r
}

func (r *rotation) secret(number int) string { return fmt.Sprintf("bound-%d", number) }

// publish makes a token and puts it where the installer sees it, by one rename.
func (r *rotation) publish() {
	r.t.Helper()
	number, must := len(r.tokens), r.c.cp.Must(r.t)
	namespace := "/api/v1/namespaces/" + r.c.namespace
	secret := must.Create(namespace+"/secrets", Object{"metadata": Object{"name": r.secret(number)}})
	answer := must.Create(namespace+"/serviceaccounts/"+r.account+"/token", Object{"spec": Object{
		"expirationSeconds": 600, // the shortest there is
		"boundObjectRef":    Object{"apiVersion": "v1", "kind": "Secret", "name": secret.Name(), "uid": secret.String("metadata", "uid")},
	}})
	r.tokens = append(r.tokens, answer.String("status", "token"))
	data := fmt.Sprintf("..%d", number)
	if err := os.Mkdir(filepath.Join(r.mount, data), 0o700); err != nil {
		r.t.Fatal(err)
	}
	r.c.writeAccount(r.t, filepath.Join(r.mount, data), r.tokens[number])
	link := filepath.Join(r.mount, "..data")
	if err := os.Symlink(data, link+"_tmp"); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		r.t.Fatal(err)
	}
}

// next publishes a token, waits until it is installed, and has the one before end as
// soon as no call can have it any more.
func (r *rotation) next(i *installation) {
	r.t.Helper()
	r.publish()
	newest := len(r.tokens) - 1
	soon(r.t, "the installation of a new token", func() bool {
		data, err := os.ReadFile(filepath.Join(i.root, "net.d", "whereabouts.d", "whereabouts.kubeconfig"))
		return err == nil && strings.Contains(string(data), r.tokens[newest])
	})
	r.mutex.Lock()
	before := r.running
	r.running = &sync.WaitGroup{}
	r.mutex.Unlock()
	r.ends <- func() {
		before.Wait()
		path := "/api/v1/namespaces/" + r.c.namespace + "/secrets/" + r.secret(newest-1)
		if err := r.c.cp.Client().Delete(r.t.Context(), path, nil); err != nil {
			r.t.Error(err)
		}
	}
}

// call runs f as a call that may use the token of now until it is over.
func (r *rotation) call(f func()) {
	r.mutex.Lock()
	running := r.running
	running.Add(1)
	r.mutex.Unlock()
	defer running.Done()
	f()
}

// close waits until all tokens but the last have been ended.
func (r *rotation) close() {
	close(r.ends)
	r.ended.Wait()
}

// refused tells whether the API server takes a token no more.
func (r *rotation) refused(number int) bool {
	path := "/apis/" + groupVersion + "/namespaces/" + r.c.namespace + "/ippools"
	_, err := r.c.cp.Client().As(r.tokens[number]).List(r.t.Context(), path)
	return testenv.StatusCode(err) == 401
}

// The plugin that was installed, with the credentials that were, works all the time
// while the tokens of its service account come and go.
func TestTokensComeAndGoWhilePodsStart(t *testing.T) {
	t.Parallel()
	adds, rotations, pause := int64(60), 6, time.Duration(0)
	if os.Getenv(rotationVariable) != "" {
		adds, rotations, pause = 500, 60, time.Second
	}
	c := newCluster(t)
	objects := pluginObjects(t, c.namespace)
	c.grant(objects)
	r := c.rotate(t, objects["ServiceAccount"].Name())
	n := newNode(t, "node-1")
	i := c.installAs(t, n, r.mount)
	i.wait(t)
	n.plugin = filepath.Join(i.root, "bin", "whereabouts")
	config := i.config(Object{"range": "10.20.0.0/24"})
	n.waitReady(t, with(config, Object{"cniVersion": "1.1.0"}))

	var done atomic.Int64
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for worker := range 4 {
		workers.Go(func() { r.startPods(n, config, worker, &done, stop) })
	}
	end := sync.OnceFunc(func() { close(stop); workers.Wait(); r.close() })
	t.Cleanup(end) // also where a wait was in vain
	for number := 0; (number < rotations || done.Load() < adds) && !t.Failed(); number++ {
		r.next(i)
		time.Sleep(pause) // the form that was asked for; nothing relies on it
	}
	end()
	t.Logf("%d ADDs with %d tokens", done.Load(), len(r.tokens))
	soon(t, "the first token's end", func() bool { return r.refused(0) })
	if r.refused(len(r.tokens) - 1) {
		t.Error("the last token is refused")
	}
	c.empty(t)
}

// startPods starts pods and ends them, one after the other, until told to stop.
func (r *rotation) startPods(n node, config Object, worker int, done *atomic.Int64, stop <-chan struct{}) {
	for number := 0; ; number++ {
		select {
		case <-stop:
			return
		default:
		}
		s := pod(fmt.Sprintf("p-%d-%d", worker, number))
		for _, command := range []string{"ADD", "DEL"} {
			r.call(func() {
				if a := n.run(r.t, call{command: command, sandbox: s, config: config}); a.exit != 0 {
					r.t.Errorf("%s of %s: %s", command, s.pod, a)
				}
			})
		}
		done.Add(1)
	}
}
