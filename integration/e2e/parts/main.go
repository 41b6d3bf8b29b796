// Command parts is what a cluster has beside its control plane, in one binary: the
// scheduler, the kubelet and kubectl, picked by the first argument or by the name
// under which it is called. A module of its own, so that the plugin's module does
// not carry Kubernetes' whole dependency tree.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	command := component(filepath.Base(os.Args[0]))
	if command == nil && len(os.Args) > 1 {
		// Each component reads os.Args itself and expects its own name first.
		os.Args = os.Args[1:]
		command = component(os.Args[0])
	}
	if command == nil {
		fmt.Fprintln(os.Stderr, "usage: parts kube-scheduler|kubelet|kubectl ARGUMENT...")
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}

func component(name string) *cobra.Command {
	switch name {
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kubectl":
		return kubectl.NewDefaultKubectlCommand()
	}
	return nil
}
