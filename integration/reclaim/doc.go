// Package reclaim tests the clean-up as a whole: the built program, as it runs in a
// cluster, against a real API server on which the test plays the kubelet and the
// node controller.
//
// Clean-up looks at a whole cluster, so that each test has a control plane of its
// own. What single records come to is one table (scenes_*_test.go): all its scenes
// are set up side by side in one cluster, then clean-up runs once.
//
// WHEREABOUTS_RECLAIM_STORM is a duration for the test with pods coming and going,
// instead of 20s. WHEREABOUTS_RECLAIM_LOAD is a number of pods, such as 20000, for
// which time and memory of one pass are measured; that test does not run without it.
package reclaim
