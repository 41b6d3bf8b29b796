// Package check holds tests of the alerts and of the dashboard with Prometheus' own
// parser and engine. It is a module of its own, so that the binary's has nothing of them.
package check
