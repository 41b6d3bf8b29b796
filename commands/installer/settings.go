package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of environment variables.
const (
	binDirVariable     = "CNI_BIN_DIR"
	confDirVariable    = "CNI_CONF_DIR"
	modeVariable       = "KUBECONFIG_MODE"
	onHostVariable     = "WHEREABOUTS_KUBECONFIG_FILE_HOST"
	nodeNameVariable   = "NODENAME"
	namespaceVariable  = "WHEREABOUTS_NAMESPACE"
	hostVariable       = "KUBERNETES_SERVICE_HOST"
	portVariable       = "KUBERNETES_SERVICE_PORT"
	protocolVariable   = "KUBERNETES_SERVICE_PROTOCOL"
	caFileVariable     = "KUBE_CA_FILE"
	skipVerifyVariable = "SKIP_TLS_VERIFY"
	cronVariable       = "WHEREABOUTS_RECONCILER_CRON"
)

const (
	defaultBinDir  = "/host/opt/cni/bin"
	defaultConfDir = "/host/etc/cni/net.d"

	// hostPrefix is where the host's root, or parts of it, are mounted in a pod.
	hostPrefix = "/host"

	// DefaultServiceAccount is the directory in which a pod finds its token, the
	// authority of the API server and its namespace.
	DefaultServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// Settings say what to install and where.
type Settings struct {
	BinDir  string // of the CNI plugins, as this process sees it
	ConfDir string // of the CNI configurations, as this process sees it

	Mode     fs.FileMode // of the files below ConfDir
	OnHost   string      // path of the kubeconfig for the flat file; "" is where it is written
	NodeName string      // "" is unknown: no file tells it
	Schedule string      // reconciler_cron_expression; "" is none

	// Kubeconfig is the path of a file to install as it is. Without it one is made
	// of the following.
	Kubeconfig     string
	Server         string // URL of the API server
	SkipTLSVerify  bool
	CAFile         string
	ServiceAccount string // directory with token and namespace
	Namespace      string // "" is that of the service account
}

// ReadSettings reads the environment. kubeconfig is Settings.Kubeconfig; the service
// account is in the directory of that name. The error names all that is wrong, each
// with the variable, the value and the remedy.
func ReadSettings(getenv func(string) string, kubeconfig, serviceAccount string) (Settings, error) {
	s, err := ReadPlaces(getenv)
	r := reader{getenv: getenv, errs: []error{err}}
	s.Mode = r.mode()
	s.OnHost = r.path(onHostVariable, "")
	s.NodeName = r.text(nodeNameVariable)
	s.Kubeconfig, s.ServiceAccount = kubeconfig, serviceAccount
	if kubeconfig == "" {
		s.Server = r.server()
		s.SkipTLSVerify = r.yes(skipVerifyVariable)
		s.CAFile = r.path(caFileVariable, filepath.Join(serviceAccount, "ca.crt"))
		s.Namespace = r.text(namespaceVariable)
	}
	return s, errors.Join(r.errs...)
}

// ReadPlaces reads of the settings what it takes to remove an installation.
func ReadPlaces(getenv func(string) string) (Settings, error) {
	r := reader{getenv: getenv}
	s := Settings{
		BinDir: r.path(binDirVariable, defaultBinDir), ConfDir: r.path(confDirVariable, defaultConfDir),
		Schedule: r.text(cronVariable),
	}
	return s, errors.Join(r.errs...)
}

// OnHost is a path as the host has it, which a pod may see below /host.
func OnHost(path string) string {
	if rest, ok := strings.CutPrefix(path, hostPrefix+"/"); ok {
		return "/" + rest
	}
	return path
}

// InPod reports whether a directory is one that is mounted into a pod: below /host.
func InPod(path string) bool { return OnHost(path) != path }

// reader reads variables and collects what is wrong with them.
type reader struct {
	getenv func(string) string
	errs   []error
}

func (r *reader) text(name string) string { return strings.TrimSpace(r.getenv(name)) }

func (r *reader) wrong(name, found, remedy string) {
	r.errs = append(r.errs, fmt.Errorf("%s: found %q; %s", name, found, remedy))
}

func (r *reader) path(name, absent string) string {
	path := r.text(name)
	if path == "" {
		return absent
	}
	if !filepath.IsAbs(path) {
		r.wrong(name, path, "write an absolute path, one that begins with /")
	}
	return filepath.Clean(path)
}

func (r *reader) yes(name string) bool {
	found := r.text(name)
	if found == "" {
		return false
	}
	yes, err := strconv.ParseBool(strings.ToLower(found))
	if err != nil {
		r.wrong(name, found, "write true or false")
	}
	return yes
}

const defaultMode fs.FileMode = 0o600

// mode reads an octal number, with or without a leading 0 or 0o.
func (r *reader) mode() fs.FileMode {
	found := r.text(modeVariable)
	if found == "" {
		return defaultMode
	}
	bits, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(found), "0o"), 8, 32)
	switch {
	case err != nil || bits > 0o777:
		r.wrong(modeVariable, found, "write three octal digits like 600 or 640")
	case bits&0o400 == 0:
		r.wrong(modeVariable, found, "the owner, root, has to be able to read the files: write 600, for example")
	case bits&0o022 != 0:
		r.wrong(modeVariable, found, "nobody but root may write credentials that root uses: write 600, 640 or 644")
	}
	return fs.FileMode(bits)
}

func (r *reader) server() string {
	protocol := strings.ToLower(r.text(protocolVariable))
	switch protocol {
	case "":
		protocol = "https"
	case "https", "http":
	default:
		r.wrong(protocolVariable, protocol, "write https, or leave it out")
	}
	host := strings.TrimSuffix(strings.TrimPrefix(r.text(hostVariable), "["), "]")
	if host == "" {
		r.wrong(hostVariable, host, "set it to the address of the API server; a pod has it by itself")
	} else if strings.ContainsAny(host, "/@ ") || net.ParseIP(host) == nil && strings.Contains(host, ":") {
		r.wrong(hostVariable, host, "write an address or a name alone; the port goes into "+portVariable)
	}
	port := r.text(portVariable)
	if port == "" {
		port = "443"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		r.wrong(portVariable, port, "write a number from 1 to 65535")
	}
	return protocol + "://" + net.JoinHostPort(host, port)
}
