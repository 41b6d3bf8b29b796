package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadConfigurations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ipam Object
		says []string
	}{
		"no source of addresses":       {Object{"range": ""}, []string{"range"}},
		"range without a length":       {Object{"range": "10.17.0.0"}, []string{"range", "10.17.0.0"}},
		"range is a word":              {Object{"range": "what?"}, []string{"range", "what?"}},
		"length out of bounds":         {Object{"range": "10.17.0.0/33"}, []string{"range", "10.17.0.0/33"}},
		"first outside of its net":     {Object{"range": "10.17.0.5-10.17.1.9/24"}, []string{"range", "10.17.0.5"}},
		"bad entry of ipRanges":        {Object{"ipRanges": []Object{{"range": "fd00::/129"}}}, []string{"ipRanges", "fd00::/129"}},
		"exclude":                      {Object{"exclude": []string{"10.17.0.4/30", "10.17.0.300/30"}}, []string{"exclude[1]", "10.17.0.300"}},
		"exclude of an ipRanges":       {Object{"ipRanges": []Object{{"range": "fd00::/64", "exclude": []string{"fd00::x"}}}}, []string{"exclude", "fd00::x"}},
		"gateway":                      {Object{"gateway": "10.17.0.x"}, []string{"gateway", "10.17.0.x"}},
		"gateway of an ipRanges":       {Object{"ipRanges": []Object{{"range": "fd00::/64", "gateway": "fd00::x"}}}, []string{"gateway", "fd00::x"}},
		"slice larger than range":      {Object{"node_slice_size": "/22"}, []string{"node_slice_size", "/22"}},
		"slice size is a word":         {Object{"node_slice_size": "big"}, []string{"node_slice_size", "big"}},
		"fixed address":                {Object{"addresses": []Object{{"address": "10.17.0.x/24"}}}, []string{"addresses[0]", "10.17.0.x"}},
		"unknown datastore":            {Object{"datastore": "paper"}, []string{"datastore", "paper"}},
		"range is a number":            {Object{"range": 5}, []string{"range", "5"}},
		"lease duration is a word":     {Object{"leader_lease_duration": "long"}, []string{"leader_lease_duration"}},
		"switch is a word":             {Object{"enable_overlapping_ranges": "perhaps"}, []string{"enable_overlapping_ranges"}},
		"kubeconfig that is not there": {Object{"kubernetes": Object{"kubeconfig": "/nowhere/kubeconfig"}}, []string{"/nowhere/kubeconfig"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			good := c.ranged("10.17.0.0/24")
			bad := withIPAM(good, test.ipam)
			mentions(t, n.add(t, pod("a"), bad).fails(t, 7), test.says...)
			c.empty(t)
			if len(c.pools()) > 0 {
				t.Error("a bad configuration made a pool")
			}
			if test.ipam["datastore"] != nil || test.ipam["kubernetes"] != nil {
				return // the datastore is what DEL needs
			}
			n.add(t, pod("a"), good).gets(t, "10.17.0.1/24")
			n.del(t, pod("a"), bad).ok(t)
			c.empty(t)
			n.gc(t, with(bad, Object{"cniVersion": "1.1.0"}), validAttachments, nil).ok(t)
		})
	}
}

// Older plugins took these, and an upgrade must not stop pods.
func TestToleratedConfigurations(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ipam Object
		want string
	}{
		"start after end":           {Object{"range_start": "10.17.0.9", "range_end": "10.17.0.5"}, "10.17.0.9/24"},
		"start of the other family": {Object{"range_start": "fd00::5"}, "10.17.0.1/24"},
		"start is a word":           {Object{"range_start": "x"}, "10.17.0.1/24"},
		"end is a word":             {Object{"range_end": "x"}, "10.17.0.1/24"},
		"start outside":             {Object{"range_start": "10.18.0.5"}, "10.17.0.1/24"},
		"unknown key":               {Object{"colour": "green", "nested": Object{"a": []int{1}}}, "10.17.0.1/24"},
		"keys without effect": {
			Object{"sleep_for_race": 0, "leader_lease_duration": 1500, "leader_renew_deadline": 1000, "leader_retry_period": 500}, "10.17.0.1/24",
		},
		"leftover datastore etcd": {Object{"datastore": "etcd", "etcd_host": "10.0.0.1:2379"}, "10.17.0.1/24"},
		"gateway of other family": {Object{"gateway": "fd00::1"}, "10.17.0.1/24"},
		"log file that cannot be": {Object{"log_file": "/tmp/no/such/directory/here/log"}, "10.17.0.1/24"},
		"log file out of bounds":  {Object{"log_file": "/etc/whereabouts-test.log"}, "10.17.0.1/24"},
		"log level in capitals":   {Object{"log_level": "DEBUG"}, "10.17.0.1/24"},
		"k8s_api_root":            {Object{"kubernetes": Object{"k8s_api_root": "https://10.96.0.1"}}, "10.17.0.1/24"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			if extra, ok := test.ipam["kubernetes"].(Object); ok {
				test.ipam["kubernetes"] = with(extra, Object{"kubeconfig": c.kubeconfig})
			}
			config := withIPAM(c.ranged("10.17.0.0/24"), test.ipam)
			n.add(t, pod("a"), config).gets(t, test.want)
			n.del(t, pod("a"), config).ok(t)
			c.empty(t)
		})
	}
	if _, err := os.Stat("/etc/whereabouts-test.log"); err == nil {
		t.Error("a network configuration had a log file written in /etc")
	}
}

func TestBrokenJSON(t *testing.T) {
	t.Parallel()
	n := newNode(t, "node-1")
	config := "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"net-a\",\n  \"ipam\": {\"etcd_password\": \"hunter2\",, }\n}"
	for _, command := range []string{"ADD", "DEL", "CHECK"} {
		a := n.run(t, call{command: command, sandbox: pod("a"), config: config})
		message := a.fails(t, 6)
		if !strings.Contains(message, "line 4") && !strings.Contains(message, "4:") {
			t.Errorf("%s: %q does not name the line, which is 4", command, message)
		}
		mentions(t, message, "column")
		if strings.Contains(a.stdout+a.stderr, "hunter2") {
			t.Errorf("%s: the input is echoed, password and all: %s", command, a)
		}
	}
	n.run(t, call{command: "ADD", sandbox: pod("a"), config: ""}).fails(t, 6)
}

func TestBadParameters(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change call
		says   string
	}{
		"no container":         {call{unset: []string{"CNI_CONTAINERID"}}, "CNI_CONTAINERID"},
		"no interface":         {call{unset: []string{"CNI_IFNAME"}}, "CNI_IFNAME"},
		"no network namespace": {call{unset: []string{"CNI_NETNS"}}, "CNI_NETNS"},
		"no path":              {call{unset: []string{"CNI_PATH"}}, "CNI_PATH"},
		"bad command":          {call{command: "FETCH"}, "CNI_COMMAND"},
		"unknown argument":     {call{env: map[string]string{"CNI_ARGS": "COLOUR=green"}}, "COLOUR"},
		"argument without =":   {call{env: map[string]string{"CNI_ARGS": "IgnoreUnknown=1;IP"}}, "IP"},
		"bad address":          {call{args: []string{"IP=10.17.0.x"}}, "10.17.0.x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			full := test.change
			full.sandbox, full.config = pod("a"), c.ranged("10.17.0.0/24")
			if full.command == "" {
				full.command = "ADD"
			}
			mentions(t, n.run(t, full).fails(t, 4), test.says)
			c.empty(t)
		})
	}
	t.Run("unknown argument to be ignored", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		n := newNode(t, "node-1")
		n.run(t, call{
			command: "ADD", sandbox: pod("a"), config: c.ranged("10.17.0.0/24"),
			env: map[string]string{"CNI_ARGS": "COLOUR=green;IgnoreUnknown=true"},
		}).gets(t, "10.17.0.1/24")
		n.del(t, pod("a"), c.ranged("10.17.0.0/24")).ok(t)
		c.empty(t)
	})
	t.Run("version of the future", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t)
		newNode(t, "node-1").add(t, pod("a"), with(c.ranged("10.17.0.0/24"), Object{"cniVersion": "9.9.9"})).fails(t, 1)
	})
}

// A network configuration may come from anybody who may write one; the plugin
// runs as root on every node.
func TestKubeconfigThatRunsAProgram(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]Object{
		"exec":          {"exec": Object{"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "/bin/sh"}},
		"auth-provider": {"auth-provider": Object{"name": "gcp", "config": Object{"cmd-path": "/bin/sh"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			n := newNode(t, "node-1")
			ran := filepath.Join(t.TempDir(), "ran")
			if exec, ok := user["exec"].(Object); ok {
				exec["args"] = []string{"-c", "echo >" + ran}
			}
			kubeconfig := writeJSON(t, "kubeconfig", Object{
				"apiVersion": "v1", "kind": "Config", "current-context": "c",
				"clusters": []Object{{"name": "c", "cluster": Object{"server": c.proxy.URL, "certificate-authority-data": c.proxy.CA}}},
				"users":    []Object{{"name": "c", "user": user}},
				"contexts": []Object{{"name": "c", "context": Object{"cluster": "c", "user": "c", "namespace": c.namespace}}},
			})
			config := withIPAM(c.ranged("10.17.0.0/24"), Object{"kubernetes": Object{"kubeconfig": kubeconfig}})
			mentions(t, n.add(t, pod("a"), config).fails(t, 7), name)
			if _, err := os.Stat(ran); err == nil {
				t.Error("the program was run")
			}
			c.empty(t)
		})
	}
}
