package commands

import (
	"os"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

func TestCallsWithOtherCredentialsForEtcdAreNotCombined(t *testing.T) {
	v := verbs{Process{Getenv: func(string) string { return "" }, ReadFile: os.ReadFile}}
	base := ipam.EtcdConfig{Endpoints: []string{"10.0.0.1"}, Username: "u", Password: "p", CAFile: "/ca", CertFile: "/cert", KeyFile: "/key"}
	key := func(change func(*ipam.EtcdConfig)) string {
		cfg := base
		change(&cfg)
		return queueKey(&ipam.Config{Datastore: ipam.DatastoreEtcd, Etcd: cfg}, v)
	}
	same := key(func(*ipam.EtcdConfig) {})
	if again := key(func(*ipam.EtcdConfig) {}); again != same {
		t.Errorf("equal configurations have the keys %s and %s", same, again)
	}
	for name, change := range map[string]func(*ipam.EtcdConfig){
		"endpoints": func(c *ipam.EtcdConfig) { c.Endpoints = []string{"10.0.0.2"} },
		"user":      func(c *ipam.EtcdConfig) { c.Username = "other" },
		"password":  func(c *ipam.EtcdConfig) { c.Password = "other" },
		"authority": func(c *ipam.EtcdConfig) { c.CAFile = "/other" },
		"own":       func(c *ipam.EtcdConfig) { c.CertFile = "/other" },
		"own key":   func(c *ipam.EtcdConfig) { c.KeyFile = "/other" },
	} {
		if key(change) == same {
			t.Errorf("calls that differ in the %s would be combined", name)
		}
	}
}
