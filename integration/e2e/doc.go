// Package e2e tries the image and the manifests, as they are shipped, in a whole
// cluster (see package cluster), by what users do: kubectl, pods, a node's shell. Its
// tests are those of `make e2e`, behind the build tag e2e; they need root.
package e2e
