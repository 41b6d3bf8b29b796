package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// DefaultNamespace holds the objects when nothing says otherwise.
const DefaultNamespace = "kube-system"

const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options say which API server to use and as whom.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file; "" is the pod's own service
	// account (in-cluster).
	Kubeconfig string
	// AllowExec accepts a kubeconfig that runs a program for its credentials. A
	// plugin must not: it runs as root on the node, with a file that others may
	// have named.
	AllowExec bool
	Getenv    func(string) string
	// Answered, if set, is called when the API server has answered a request
	// and is not in trouble itself: it can be reached. It may be called from
	// any goroutine.
	Answered func()
}

// Client makes requests to one API server. It is safe for concurrent use.
type Client struct {
	http      *http.Client
	base      *url.URL
	namespace string
	answered  func()
}

// NewClient reads the credentials and makes no request. The namespace is that of
// the kubeconfig's current context, or in a pod WHEREABOUTS_NAMESPACE, else the
// pod's own; DefaultNamespace when that is empty. Errors wrap ipam.ErrInvalid.
func NewClient(o Options) (*Client, error) {
	config, namespace, err := load(o)
	if err != nil {
		return nil, err
	}
	// The environment of the container runtime may name a proxy for pulling
	// images. The API server is reached directly, unless the kubeconfig itself
	// says otherwise (proxy-url).
	if config.Proxy == nil {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	config.UserAgent = "whereabouts"
	// To compress a large pool costs the server more than to send it.
	config.DisableCompression = true
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: credentials of %s: %w", ipam.ErrInvalid, o.source(), err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("%w: server of %s: %w", ipam.ErrInvalid, o.source(), err)
	}
	if namespace == "" {
		namespace = DefaultNamespace
	}
	answered := o.Answered
	if answered == nil {
		answered = func() {}
	}
	return &Client{http: httpClient, base: base, namespace: namespace, answered: answered}, nil
}

// Namespace is where this client's objects are.
func (c *Client) Namespace() string { return c.namespace }

// In is the same client for the objects of another namespace. The two share their
// connections.
func (c *Client) In(namespace string) *Client {
	other := *c
	other.namespace = namespace
	return &other
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func (o Options) source() string {
	if o.Kubeconfig == "" {
		return "the pod's service account"
	}
	return "kubeconfig " + o.Kubeconfig
}

func load(o Options) (*rest.Config, string, error) {
	if o.Kubeconfig == "" {
		return loadInCluster(o)
	}
	raw, err := clientcmd.LoadFromFile(o.Kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%w: kubernetes.kubeconfig: %s does not exist; "+
			"is whereabouts installed on this node?", ipam.ErrInvalid, o.Kubeconfig)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%w: kubernetes.kubeconfig: %w", ipam.ErrInvalid, err)
	}
	current, ok := raw.Contexts[raw.CurrentContext]
	if !ok {
		return nil, "", fmt.Errorf("%w: kubernetes.kubeconfig: %s has no context %q (current-context)",
			ipam.ErrInvalid, o.Kubeconfig, raw.CurrentContext)
	}
	if err := checkExec(raw.AuthInfos[current.AuthInfo], o); err != nil {
		return nil, "", err
	}
	config, err := clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%w: kubernetes.kubeconfig: %s: %w", ipam.ErrInvalid, o.Kubeconfig, err)
	}
	return config, current.Namespace, nil
}

func checkExec(user *clientcmdapi.AuthInfo, o Options) error {
	if o.AllowExec || user == nil {
		return nil
	}
	key := ""
	switch {
	case user.Exec != nil:
		key = "exec"
	case user.AuthProvider != nil:
		key = "auth-provider"
	default:
		return nil
	}
	return fmt.Errorf("%w: kubernetes.kubeconfig: %s wants to run a program for its credentials (%s), "+
		"which a plugin does not do; use a token or a client certificate", ipam.ErrInvalid, o.Kubeconfig, key)
}

func loadInCluster(o Options) (*rest.Config, string, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%w: kubernetes.kubeconfig is not set and this is not a pod with a service account: %w",
			ipam.ErrInvalid, err)
	}
	if ns := o.Getenv("WHEREABOUTS_NAMESPACE"); ns != "" {
		return config, ns, nil
	}
	data, err := os.ReadFile(podNamespaceFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("%w: namespace of this pod: %w", ipam.ErrInvalid, err)
	}
	return config, strings.TrimSpace(string(data)), nil
}
