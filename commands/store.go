package commands

import (
	"fmt"
	"strings"

	"github.com/whereabouts-cni/whereabouts/ipam"
	"github.com/whereabouts-cni/whereabouts/ipam/etcd"
	"github.com/whereabouts-cni/whereabouts/ipam/local"
	"github.com/whereabouts-cni/whereabouts/ipam/node"
	"github.com/whereabouts-cni/whereabouts/kube"
)

// openStore opens the datastore that the configuration names, and no other: a
// store that does not work is an error, never a reason to use another one. answered
// may be nil, see kube.Options.
func openStore(cfg *ipam.Config, getenv func(string) string, answered func()) (ipam.Store, error) {
	switch cfg.Datastore {
	case ipam.DatastoreLocal:
		return local.Open(cfg.LocalPath)
	case ipam.DatastoreKubernetes:
		client, err := kube.NewClient(kube.Options{Kubeconfig: cfg.Kubeconfig, Getenv: getenv, Answered: answered})
		if err != nil {
			return nil, err
		}
		return kube.NewStore(client, node.NewContention(cfg.RunDirectory)), nil
	case ipam.DatastoreEtcd:
		return etcd.Open(cfg.Etcd, answered)
	default:
		return nil, fmt.Errorf("%w: datastore: this version has no %q; use %q, %q or %q",
			ipam.ErrInvalid, cfg.Datastore, ipam.DatastoreKubernetes, ipam.DatastoreEtcd, ipam.DatastoreLocal)
	}
}

// storeName tells stores apart, without credentials: see node.NewReleases. With TLS or
// without, it is the same etcd.
func storeName(cfg *ipam.Config) string {
	switch cfg.Datastore {
	case ipam.DatastoreLocal:
		return cfg.Datastore + " " + cfg.LocalPath
	case ipam.DatastoreEtcd:
		return cfg.Datastore + " " + strings.Join(etcd.Addresses(cfg.Etcd), ",")
	default:
		return cfg.Datastore + " " + cfg.Kubeconfig
	}
}
