// Package history holds a test that lets pods come and go on several nodes while
// processes are killed, requests fail and servers restart. The records are in custom
// resources, or in an etcd of three members, one of which is killed, loses its network
// or gives up the lead now and then. It writes down what each caller was told, and
// proves from that that no address was ever held by two pods at once and that none was
// lost:
//
//	go test ./integration/history    about a minute and a half
//	HISTORY_TIME=10m go test ./integration/history -run 'TestHistory$' -count=1 -timeout 0 -v
//	HISTORY_TIME=10m go test ./integration/history -run TestHistoryOnEtcd -count=1 -timeout 0 -v
//
// HISTORY_SEED repeats the choices of a run; when things happen is up to the machine.
//
// # What is proved
//
// A pod's interface holds an address definitely from the moment its ADD has
// returned until the moment the DEL of its container is started, or a new container
// of the pod. Two definite holdings of one address in one address space that overlap
// in time, and are not of the same pod and interface, are a fault: the ledger finds
// them. While a holding lasts, its record has to be in the pool, with its reservation,
// under its container id: the audit looks now and then, and at the end.
//
// When all has come to rest, the records are those of the pods that still live, and
// nothing else. What may be left are traces of an ADD that was killed, or of a write
// that reached the datastore after its caller had died: "left to reconcile", and
// counted.
//
// # How the pods behave
//
// As those of a kubelet: an ADD that failed, or was killed, is followed by the DEL
// of its container, again and again until it succeeds, and then by another container
// of the same pod. Some runtimes cannot kill the process whose patience ended, so that
// it goes on while the DEL is under way. A pod's container may be replaced by another
// one whose DEL comes late; a pod may be born again under the same name, elsewhere,
// before the old one is gone; DELs are repeated; containers are forgotten until a
// garbage collection.
package history
