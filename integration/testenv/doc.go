// Package testenv gives tests a real control plane and ways to break it: etcd
// and kube-apiserver as child processes, kubeconfigs for them, and a proxy that
// counts requests and injects faults.
//
// # A control plane
//
// The tests of a package share one, which starts when the first test asks for
// it:
//
//	var shared = testenv.Shared{CRDs: "../manifests/crds"}
//
//	func TestMain(m *testing.M) { shared.Main(m) }
//
//	func TestAdd(t *testing.T) {
//		cp := shared.ControlPlane(t)
//		namespace := cp.Namespace(t)
//		kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: namespace})
//		...
//		pool := cp.Must(t).Get(path)
//
// A test that stops or kills the servers, or wants other custom resource
// definitions, has its own by Start. Every control plane knows the users Admin
// (the default), Nobody and User1 to User5, which have the rights that a test
// binds to them.
//
// # Faults
//
//	proxy := cp.Proxy(t)
//	kubeconfig := cp.Kubeconfig(t, testenv.Options{Namespace: namespace, Via: proxy})
//	lost := proxy.Inject(testenv.Rule{
//		Match:  testenv.Match{Method: "PATCH", Path: "/ippools/"},
//		Action: testenv.LoseAnswer(),
//	})
//	... // run what is tested with the kubeconfig
//	if lost.Hits() != 1 { ... }
//	if n := proxy.Count(testenv.Match{}); n != 4 { proxy.Log(t); ... }
//
// A rule acts once, on the first request that matches, unless Nth and Times say
// otherwise. The actions are the functions that answer an Action: Refuse,
// LoseAnswer, CutAnswer, Slow, Answer, AnswerStatus, ForwardThenAnswer, Hang,
// ForwardThenHang, Before and After. Before and After call a function of the
// test, so that a test need not wait for times to pass: it can let another
// writer in, kill a server, or hold a request until a channel is closed. Down,
// Up and Break do without a rule.
//
// # The binary
//
// The servers are one binary, built once from integration/controlplane, which
// takes minutes, and kept in the user's cache directory (see Build). To build it
// ahead of the tests:
//
//	go run ./integration/testenv/cmd/controlplane-build
//
// WHEREABOUTS_CONTROL_PLANE names a ready binary instead.
//
// # What stays behind
//
// Nothing: the servers end with the test, or with the test's process however it
// ends; data is kept in memory (/dev/shm) where there is such a place, and what
// a killed test left there is removed by the next one. Only Linux is supported.
package testenv
