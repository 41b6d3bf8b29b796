package installer

import (
	"strings"
	"testing"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestSettingsOfAPod(t *testing.T) {
	s, err := ReadSettings(environment(), "", DefaultServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		BinDir: "/host/opt/cni/bin", ConfDir: "/host/etc/cni/net.d", Mode: 0o600, Server: "https://10.0.0.1:443",
		CAFile:         "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		ServiceAccount: "/var/run/secrets/kubernetes.io/serviceaccount",
	}
	if s != want {
		t.Errorf("got %+v, want %+v", s, want)
	}
}

func TestServer(t *testing.T) {
	for name, test := range map[string]struct{ host, port, protocol, want string }{
		"IPv4":            {"10.0.0.1", "6443", "", "https://10.0.0.1:6443"},
		"IPv6":            {"fd00::1", "443", "", "https://[fd00::1]:443"},
		"IPv6 bracketed":  {"[fd00::1]", "443", "", "https://[fd00::1]:443"},
		"name":            {"api.example.com", "443", "", "https://api.example.com:443"},
		"no port":         {"10.0.0.1", "", "", "https://10.0.0.1:443"},
		"other protocol":  {"10.0.0.1", "80", "HTTP", "http://10.0.0.1:80"},
		"blanks about it": {" 10.0.0.1 ", " 443\n", " https ", "https://10.0.0.1:443"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := ReadSettings(environment("KUBERNETES_SERVICE_HOST", test.host, "KUBERNETES_SERVICE_PORT", test.port,
				"KUBERNETES_SERVICE_PROTOCOL", test.protocol), "", DefaultServiceAccount)
			if err != nil || s.Server != test.want {
				t.Errorf("got %q, %v, want %q", s.Server, err, test.want)
			}
		})
	}
}

func TestMode(t *testing.T) {
	for text, want := range map[string]uint32{"": 0o600, "600": 0o600, "0600": 0o600, "0o640": 0o640, "644": 0o644, "400": 0o400} {
		s, err := ReadSettings(environment("KUBECONFIG_MODE", text), "", DefaultServiceAccount)
		if err != nil || uint32(s.Mode) != want {
			t.Errorf("%q: got %o, %v, want %o", text, s.Mode, err, want)
		}
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for name, test := range map[string]struct {
		pairs []string
		says  []string
	}{
		"relative directory for binaries":       {[]string{"CNI_BIN_DIR", "opt/cni/bin"}, []string{"CNI_BIN_DIR", `"opt/cni/bin"`, "absolute"}},
		"relative directory for configurations": {[]string{"CNI_CONF_DIR", "./net.d"}, []string{"CNI_CONF_DIR", `"./net.d"`, "absolute"}},
		"relative path on the host":             {[]string{"WHEREABOUTS_KUBECONFIG_FILE_HOST", "x"}, []string{"WHEREABOUTS_KUBECONFIG_FILE_HOST", `"x"`, "absolute"}},
		"mode in words":                         {[]string{"KUBECONFIG_MODE", "rw-------"}, []string{"KUBECONFIG_MODE", `"rw-------"`, "octal"}},
		"mode that is not octal":                {[]string{"KUBECONFIG_MODE", "680"}, []string{"KUBECONFIG_MODE", `"680"`, "octal"}},
		"mode with more than permissions":       {[]string{"KUBECONFIG_MODE", "4600"}, []string{"KUBECONFIG_MODE", `"4600"`}},
		"mode that nobody may read":             {[]string{"KUBECONFIG_MODE", "000"}, []string{"KUBECONFIG_MODE", `"000"`, "root"}},
		"mode that others may write":            {[]string{"KUBECONFIG_MODE", "0666"}, []string{"KUBECONFIG_MODE", `"0666"`, "640"}},
		"mode that is negative":                 {[]string{"KUBECONFIG_MODE", "-600"}, []string{"KUBECONFIG_MODE", `"-600"`}},
		"no API server":                         {[]string{"KUBERNETES_SERVICE_HOST", ""}, []string{"KUBERNETES_SERVICE_HOST"}},
		"API server with a port":                {[]string{"KUBERNETES_SERVICE_HOST", "10.0.0.1:443"}, []string{"KUBERNETES_SERVICE_HOST", `"10.0.0.1:443"`, "PORT"}},
		"API server as a URL":                   {[]string{"KUBERNETES_SERVICE_HOST", "https://x"}, []string{"KUBERNETES_SERVICE_HOST", `"https://x"`}},
		"port in words":                         {[]string{"KUBERNETES_SERVICE_PORT", "https"}, []string{"KUBERNETES_SERVICE_PORT", `"https"`, "65535"}},
		"port zero":                             {[]string{"KUBERNETES_SERVICE_PORT", "0"}, []string{"KUBERNETES_SERVICE_PORT", `"0"`}},
		"port too large":                        {[]string{"KUBERNETES_SERVICE_PORT", "65536"}, []string{"KUBERNETES_SERVICE_PORT", `"65536"`}},
		"protocol":                              {[]string{"KUBERNETES_SERVICE_PROTOCOL", "tcp"}, []string{"KUBERNETES_SERVICE_PROTOCOL", `"tcp"`}},
		"neither true nor false":                {[]string{"SKIP_TLS_VERIFY", "maybe"}, []string{"SKIP_TLS_VERIFY", `"maybe"`, "true or false"}},
		"several at once":                       {[]string{"KUBECONFIG_MODE", "x", "CNI_BIN_DIR", "y", "SKIP_TLS_VERIFY", "z"}, []string{`"x"`, `"y"`, `"z"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadSettings(environment(test.pairs...), "", DefaultServiceAccount)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error lacks %q: %v", word, err)
				}
			}
		})
	}
}

func TestPathsOfTheHost(t *testing.T) {
	for path, want := range map[string]string{
		"/host/etc/cni/net.d":  "/etc/cni/net.d",
		"/etc/cni/net.d":       "/etc/cni/net.d",
		"/hosts/etc/cni/net.d": "/hosts/etc/cni/net.d",
		"/host":                "/host",
		"/srv/host/etc":        "/srv/host/etc",
	} {
		if got := OnHost(path); got != want || InPod(path) != (got != path) {
			t.Errorf("%s: got %s, in a pod %v, want %s", path, got, InPod(path), want)
		}
	}
}
