package installer

import (
	"encoding/base64"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// loaded reads the kubeconfig as a client does.
func (h *host) loaded(t *testing.T) (*clientcmdapi.Context, *clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(h.settings.KubeconfigPath())
	if err != nil {
		t.Fatal(err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		t.Fatalf("no context %q", config.CurrentContext)
	}
	return current, config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
}

func TestKubeconfigOfAServiceAccount(t *testing.T) {
	for name, test := range map[string]struct {
		prepare   func(*testing.T, *host)
		namespace string
		authority string
		insecure  bool
	}{
		"namespace of the settings":        {nil, "blue", certificate, false},
		"namespace of the service account": {func(t *testing.T, h *host) { h.settings.Namespace = ""; h.write(t, "account/namespace", "green") }, "green", certificate, false},
		"no namespace":                     {func(_ *testing.T, h *host) { h.settings.Namespace = "" }, "kube-system", certificate, false},
		"authority of another file": {func(t *testing.T, h *host) {
			h.settings.CAFile = h.path("ca")
			h.write(t, "ca", certificate+certificate)
		}, "blue", certificate + certificate, false},
		"not verified":       {func(_ *testing.T, h *host) { h.settings.SkipTLSVerify = true; h.settings.CAFile = "/does/not/exist" }, "blue", "", true},
		"without TLS":        {func(_ *testing.T, h *host) { h.settings.Server = "http://10.0.0.1:80"; h.settings.CAFile = "" }, "blue", "", false},
		"strange characters": {func(_ *testing.T, h *host) { h.settings.Namespace = "a\"b: \u2028{}" }, "a\"b: \u2028{}", certificate, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			if test.prepare != nil {
				test.prepare(t, h)
			}
			h.apply(t, h.installer())
			current, cluster, user := h.loaded(t)
			if current.Namespace != test.namespace || cluster.Server != h.settings.Server || user.Token != "token-1" {
				t.Errorf("namespace %q, server %q, token %q", current.Namespace, cluster.Server, user.Token)
			}
			if string(cluster.CertificateAuthorityData) != test.authority || cluster.InsecureSkipTLSVerify != test.insecure {
				t.Errorf("authority %q, insecure %v", cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify)
			}
		})
	}
}

func TestCredentialsThatAreMissing(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*testing.T, *host)
		says    []string
	}{
		"no token":        {func(_ *testing.T, h *host) { os.Remove(h.path("account/token")) }, []string{"account/token", "automountServiceAccountToken"}},
		"empty token":     {func(t *testing.T, h *host) { h.write(t, "account/token", "\n") }, []string{"account/token", "is empty"}},
		"no authority":    {func(_ *testing.T, h *host) { os.Remove(h.path("account/ca.crt")) }, []string{"KUBE_CA_FILE", "account/ca.crt", "SKIP_TLS_VERIFY"}},
		"empty authority": {func(t *testing.T, h *host) { h.write(t, "account/ca.crt", "") }, []string{"KUBE_CA_FILE", "account/ca.crt", "no certificate"}},
		"key as authority": {func(t *testing.T, h *host) {
			h.write(t, "account/ca.crt", strings.ReplaceAll(certificate, "CERTIFICATE", "PRIVATE KEY"))
		}, []string{"no certificate"}},
		"no kubeconfig": {func(_ *testing.T, h *host) { h.settings.Kubeconfig = "/does/not/exist" }, []string{"--kubeconfig", "/does/not/exist"}},
		"kubeconfig that runs a program": {func(t *testing.T, h *host) {
			h.settings.Kubeconfig = h.path("given")
			h.write(t, "given", strings.Replace(givenKubeconfig, "token: given", "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}", 1))
		}, []string{"--kubeconfig", "(exec)"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			test.prepare(t, h)
			_, err := h.installer().Apply()
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error lacks %q: %v", word, err)
				}
			}
			if _, err := os.Stat(h.settings.KubeconfigPath()); !os.IsNotExist(err) {
				t.Errorf("there is a kubeconfig: %v", err)
			}
			if h.read(t, "bin/whereabouts") != h.read(t, "binary") {
				t.Error("the binary is not installed")
			}
		})
	}
}

const givenKubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
 contexts: [{name: c, context: {cluster: c, user: u, namespace: red}}],
 clusters: [{name: c, cluster: {server: "https://10.0.0.9:1"}}],
 users: [{name: u, user: {token: given}}]}
`

func TestKubeconfigThatIsGivenIsInstalled(t *testing.T) {
	h := newHost(t)
	h.write(t, "given", givenKubeconfig)
	h.settings.Kubeconfig = h.path("given")
	i := h.installer()
	h.apply(t, i)
	current, cluster, user := h.loaded(t)
	if current.Namespace != "red" || cluster.Server != "https://10.0.0.9:1" || user.Token != "given" {
		t.Errorf("%v, %v, %v", current, cluster, user)
	}
	h.write(t, "given", strings.Replace(givenKubeconfig, "given", "renewed", 1))
	h.apply(t, i)
	if _, _, user := h.loaded(t); user.Token != "renewed" {
		t.Errorf("token %q", user.Token)
	}
}

func TestEndOfAToken(t *testing.T) {
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"exp": 1800000000, "iat": 1}`))
	for token, want := range map[string]time.Time{
		"head." + payload + ".signature": time.Unix(1800000000, 0),
		"opaque":                         {},
		"a.b.c":                          {},
		"a.!.c":                          {},
		"":                               {},
		"a." + base64.RawURLEncoding.EncodeToString([]byte(`{}`)) + ".c": {},
	} {
		h := newHost(t)
		h.write(t, "account/token", token)
		if got := h.settings.TokenExpiry(); !got.Equal(want) {
			t.Errorf("%q: got %v, want %v", token, got, want)
		}
	}
}

func TestStampIsSplitOff(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	content, started := splitStamp(stamped([]byte("a\nb\n"), at))
	if string(content) != "a\nb\n" || !started.Equal(at) {
		t.Errorf("got %q, %v", content, started)
	}
	for _, text := range []string{"", "a\nb\n", stampBegin + "yesterday" + stampEnd + "a", stampBegin, stampBegin + at.Format(time.RFC3339Nano)} {
		if content, started := splitStamp([]byte(text)); string(content) != text || !started.IsZero() {
			t.Errorf("%q: got %q, %v", text, content, started)
		}
	}
}
