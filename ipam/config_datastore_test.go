package ipam

import (
	"errors"
	"strings"
	"testing"
)

func TestDatastore(t *testing.T) {
	const (
		kubeconfig = `, "kubernetes": {"kubeconfig": "/k"}`
		etcd       = `, "etcd_host": "http://e1:2379, http://e2:2379"`
	)
	tests := []struct {
		name, conf, flat string
		env              map[string]string
		want, warning    string
	}{
		{"kubeconfig", kubeconfig, "{}", nil, "kubernetes", ""},
		{"kubeconfig in the flat file", ``, `{"kubernetes": {"kubeconfig": "/k"}}`, nil, "kubernetes", ""},
		{"in a pod", ``, "{}", inPod, "kubernetes", ""},
		{"kubernetes in a pod", `, "datastore": "kubernetes"`, "{}", inPod, "kubernetes", ""},
		{"any case", `, "datastore": " Kubernetes "`, "{}", inPod, "kubernetes", ""},
		{"leftover etcd", `, "datastore": "etcd"` + etcd + kubeconfig, "{}", nil, "kubernetes", "datastore etcd is ignored"},
		{"leftover etcd beside a kubeconfig of the flat file", `, "datastore": "etcd"` + etcd, `{"kubernetes": {"kubeconfig": "/k"}}`, nil, "kubernetes", "datastore etcd is ignored"},
		{"leftover etcd without a host", `, "datastore": "etcd"` + kubeconfig, "{}", nil, "kubernetes", "datastore etcd is ignored"},
		{"leftover etcd_host", etcd + kubeconfig, "{}", nil, "kubernetes", "etcd_host is ignored"},
		{"etcd", `, "datastore": "etcd"` + etcd, "{}", nil, "etcd", ""},
		{"etcd in a pod", `, "datastore": "etcd"` + etcd, "{}", inPod, "etcd", ""},
		{"local", `, "datastore": "local"`, "{}", nil, "local", ""},
		{"local beside a kubeconfig", `, "datastore": "local"` + kubeconfig + etcd, "{}", inPod, "local", ""},
		{"local of the flat file beside a kubeconfig", kubeconfig, `{"datastore": "local"}`, nil, "local", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := flatHost(test.flat).with(test.env).mustParse(t, `"range": "10.0.0.0/24"`+test.conf)
			wantEqual(t, "Datastore", cfg.Datastore, test.want)
			if warnings := strings.Join(cfg.Warnings, "\n"); (warnings == "") != (test.warning == "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
		})
	}
}

func TestDatastoreErrors(t *testing.T) {
	tests := []struct {
		name, conf string
		words      []string
	}{
		{"no kubeconfig outside a pod", ``, []string{"kubernetes.kubeconfig", "missing", "no pod", "whereabouts.conf", `set "datastore" to etcd or local`}},
		{"kubernetes without a kubeconfig outside a pod", `, "datastore": "kubernetes"`, []string{"kubernetes.kubeconfig", "missing"}},
		{"etcd_host does not choose etcd", `, "etcd_host": "http://e:2379"`, []string{"kubernetes.kubeconfig", "missing", `set "datastore" to etcd`}},
		{"etcd without a host", `, "datastore": "etcd", "etcd_host": " , "`, []string{"etcd_host", "missing", "https://10.0.0.1:2379"}},
		{"unknown", `, "datastore": "consul"`, []string{"datastore", `"consul"`, "use kubernetes, etcd or local"}},
		{"unknown beside a kubeconfig", `, "datastore": "consul", "kubernetes": {"kubeconfig": "/k"}`, []string{"datastore", `"consul"`}},
		{"local with a relative path", `, "datastore": "local", "local_path": "w.db"`, []string{"local_path", `"w.db"`, "absolute", "write one like"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := configHost{}.parse(`"range": "10.0.0.0/24"` + test.conf)
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v does not wrap ErrInvalid", err)
			}
			wantWords(t, err.Error(), test.words...)
			if cfg == nil || prefixesOf(cfg.Ranges) != "10.0.0.0/24" {
				t.Errorf("the rest of the configuration is not there: %v", cfg)
			}
		})
	}
}

func TestEtcdAndLocalSettings(t *testing.T) {
	cfg := configHost{}.mustParse(t, `"range": "10.0.0.0/24", "datastore": "etcd", "etcd_host": "http://e1:2379, http://e2:2379,",
		"etcd_username": "u", "etcd_password": "p", "etcd_key_file": "/k", "etcd_cert_file": "/c", "etcd_ca_cert_file": "/a",
		"local_path": "/x/y.db"`)
	wantEqual(t, "Etcd", cfg.Etcd, EtcdConfig{
		Endpoints: []string{"http://e1:2379", "http://e2:2379"},
		Username:  "u", Password: "p", KeyFile: "/k", CertFile: "/c", CAFile: "/a",
	})
	wantEqual(t, "LocalPath", cfg.LocalPath, "/x/y.db")
}
