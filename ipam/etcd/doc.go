// Package etcd keeps records in an etcd cluster that hosts share: for container
// runtimes without Kubernetes.
//
// It talks to etcd's JSON gateway with net/http, not with etcd's own client: what
// is linked into the binary is paid at each start of a pod (client.go).
//
// # Writing
//
// There is one key for each address (keys.go). A change is judged by what is stored
// (judge.go) and carried out in one transaction, which compares that nothing of it
// has changed since. Record, reservation and index are written in that transaction,
// so there are no half records; those that somebody made by hand are treated as the
// contract of ipam.Store says. Writers of different addresses never meet.
//
// A transaction may arrive long after its sender has given up or died: from a
// connection that was cut, or a member that was. By then a DEL may have found nothing
// of it. So a release writes the fence of its container (judge.go), and a take or
// rewrite compares that nobody wrote it since its sender heard from etcd last: what
// comes after the DEL is not carried out. The node's journal tells a DEL what the
// container was about to take, so that one that finds nothing still writes the fence.
//
// # Finding a free address
//
// A pool may have too many records to be read for each address (search.go). So the
// addresses of a pool are divided into blocks of 256. A reader that finds nothing
// for itself in a block notes what is free there, for all that come later; a release
// in the block crosses the note out in its own transaction. A note may list
// addresses that were taken since, never miss one that is free. Takes do not touch
// the notes.
//
// # What etcd alone cannot know
//
// Nothing here knows which containers live. What a host lost without a DEL is freed
// by CNI's GC of the runtime on that host, or by a person with ip-control.
package etcd
