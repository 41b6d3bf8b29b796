package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// MostNodes is how many nodes a cluster may have.
const MostNodes = 9

// Cluster is a running cluster.
type Cluster struct {
	Nodes []*Node

	dir     string
	tools   string         // directory of the cluster's programs
	plugins string         // directory of CNI plugins
	images  []string       // archives that every node has when it starts
	fabric  *testenv.Space // see newFabric
	control control
}

// Options say what a cluster is to be.
type Options struct {
	Nodes    int      // 1 to MostNodes
	Dir      string   // for all that it writes; on a file system that overlays can lie on
	Programs Programs // see Build
}

// Start starts a cluster and returns when its nodes take pods. The caller has to Close
// what it answers, even if there is an error.
func Start(o Options) (*Cluster, error) {
	c := &Cluster{dir: o.Dir, tools: o.Programs.Tools, plugins: o.Programs.Plugins, control: control{dir: filepath.Join(o.Dir, "control")}}
	if o.Nodes < 1 || o.Nodes > MostNodes {
		return c, fmt.Errorf("a cluster has 1 to %d nodes, not %d", MostNodes, o.Nodes)
	}
	var err error
	if c.images, err = writeImages(o.Programs.Tools, filepath.Join(o.Dir, "images")); err != nil {
		return c, fmt.Errorf("images: %w", err)
	}
	if c.fabric, err = newFabric(); err != nil {
		return c, err
	}
	if err := c.startControl(o.Programs.ControlPlane); err != nil {
		return c, fmt.Errorf("control plane (its logs are in %s): %w", c.control.dir, err)
	}
	if _, err := c.Kubectl(definition, "apply", "-f", "-"); err != nil {
		return c, err
	}
	for i := 1; i <= o.Nodes; i++ {
		n, err := c.newNode(i)
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c, c.powerOn()
}

func (c *Cluster) powerOn() error {
	for _, n := range c.Nodes {
		if err := n.PowerOn(); err != nil {
			return err
		}
	}
	for _, n := range c.Nodes {
		if err := n.Ready(); err != nil {
			return err
		}
	}
	return wait("the default service account", func() error {
		_, err := c.Kubectl("", "get", "serviceaccount", "default")
		return err
	})
}

// Ready waits until the node takes pods.
func (n *Node) Ready() error {
	return wait(n.Name, func() error {
		taints, err := n.cluster.Kubectl("", "get", "node", n.Name, "-o", "jsonpath={.spec.taints}{.status.conditions[?(@.type=='Ready')].status}")
		if err == nil && taints != "True" {
			err = fmt.Errorf("taints and readiness are %q; it said: %s", taints, n.said())
		}
		return err
	})
}

// Close ends all of it. What it wrote stays in its directory.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		n.CutPower()
	}
	for _, process := range c.control.processes {
		process.Kill()
	}
	if c.fabric != nil {
		c.fabric.Close()
	}
}

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, "admin.kubeconfig") }

// AuditLog is the path of the API server's record of what service accounts did: one
// audit.k8s.io/v1 Event per line.
func (c *Cluster) AuditLog() string { return c.control.file("audit.log") }

// Kubectl runs kubectl as administrator, with a standard input, and answers what it
// prints.
func (c *Cluster) Kubectl(stdin string, args ...string) (string, error) {
	return c.administer("kubectl", stdin, args)
}

// Helm runs helm as administrator, and answers what it prints.
func (c *Cluster) Helm(args ...string) (string, error) {
	return c.administer("helm", "", args)
}

func (c *Cluster) administer(tool, stdin string, args []string) (text string, err error) {
	cmd := exec.Command(filepath.Join(c.tools, tool), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	cmd.Stdin = strings.NewReader(stdin)
	err = c.fabric.Do(func() (err error) {
		text, err = output(cmd)
		return err
	})
	return text, err
}

// Load brings an image archive to every node.
func (c *Cluster) Load(archive string) error {
	c.images = append(c.images, archive)
	var errs []error
	for _, n := range c.Nodes {
		errs = append(errs, n.Load(archive))
	}
	return errors.Join(errs...)
}

// definition is that of networks, no more of it than Multus needs.
const definition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    kind: NetworkAttachmentDefinition
    plural: network-attachment-definitions
    singular: network-attachment-definition
    shortNames: [net-attach-def]
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                config: {type: string}
`
