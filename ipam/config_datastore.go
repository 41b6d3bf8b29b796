package ipam

import (
	"path/filepath"
	"strings"
)

// readDatastore reads where the records are. Each store needs its own keys;
// none stands in for another.
func (p *configParser) readDatastore(ipam configSection) error {
	cfg := p.cfg
	if v := ipam.get("kubernetes"); v.object != nil {
		cfg.Kubeconfig = strings.TrimSpace(v.object.text("kubeconfig"))
	}
	cfg.Etcd = EtcdConfig{
		Endpoints: splitComma(ipam.text("etcd_host")),
		Username:  ipam.text("etcd_username"),
		Password:  ipam.text("etcd_password"),
		KeyFile:   ipam.text("etcd_key_file"),
		CertFile:  ipam.text("etcd_cert_file"),
		CAFile:    ipam.text("etcd_ca_cert_file"),
	}
	cfg.LocalPath = DefaultLocalPath
	if path := strings.TrimSpace(ipam.text("local_path")); path != "" {
		cfg.LocalPath = path
	}

	v := ipam.get("datastore")
	found := ipam.text("datastore")
	switch strings.ToLower(strings.TrimSpace(found)) {
	case DatastoreLocal:
		cfg.Datastore = DatastoreLocal
		if !filepath.IsAbs(cfg.LocalPath) {
			return invalidKey("local_path", "%q is not an absolute path; write one like %s", shortenValue(cfg.LocalPath), DefaultLocalPath)
		}
		return nil
	case DatastoreEtcd:
		return p.etcd()
	case DatastoreKubernetes, "":
		return p.kubernetes()
	}
	return invalidKey(v.label+inFlatFile(v.from), "%q is unknown; use %s, %s or %s",
		shortenValue(found), DatastoreKubernetes, DatastoreEtcd, DatastoreLocal)
}

// etcd decides for etcd, unless there is a kubeconfig: then the key is a
// leftover of configurations that moved to Kubernetes long ago.
func (p *configParser) etcd() error {
	if p.cfg.Kubeconfig != "" {
		p.cfg.Datastore = DatastoreKubernetes
		p.warnf("datastore etcd is ignored: kubernetes.kubeconfig is set, so records are kept in Kubernetes; remove one of the two")
		return nil
	}
	p.cfg.Datastore = DatastoreEtcd
	if len(p.cfg.Etcd.Endpoints) == 0 {
		return invalidKey("etcd_host", `missing, and datastore is etcd; set it to a comma list like "https://10.0.0.1:2379"`)
	}
	return nil
}

func (p *configParser) kubernetes() error {
	p.cfg.Datastore = DatastoreKubernetes
	if p.cfg.Kubeconfig == "" && p.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return invalidKey("kubernetes.kubeconfig", "missing, and this is no pod; set it in the network configuration or in %s, "+
			`or set "datastore" to %s or %s`, defaultFlatFiles[0], DatastoreEtcd, DatastoreLocal)
	}
	if len(p.cfg.Etcd.Endpoints) > 0 {
		p.warnf("etcd_host is ignored: records are kept in Kubernetes; remove it")
	}
	return nil
}
