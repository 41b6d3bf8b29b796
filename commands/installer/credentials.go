package installer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/whereabouts-cni/whereabouts/kube"
)

// credentials is what a kubeconfig is made of.
type credentials struct {
	Server, CA, Token, Namespace string // CA is base64
	SkipTLSVerify                bool
}

// quote writes a string for YAML, which takes those of JSON.
func quote(s string) (string, error) {
	quoted, err := json.Marshal(s)
	return string(quoted), err
}

// kubeconfigText has no file names in it, which would not be the host's.
const kubeconfigText = `apiVersion: v1
kind: Config
current-context: whereabouts
contexts:
- name: whereabouts
  context:
    cluster: kubernetes
    user: whereabouts
    namespace: {{quote .Namespace}}
clusters:
- name: kubernetes
  cluster:
    server: {{quote .Server}}
{{- if .SkipTLSVerify}}
    insecure-skip-tls-verify: true
{{- else if .CA}}
    certificate-authority-data: {{quote .CA}}
{{- end}}
users:
- name: whereabouts
  user:
    token: {{quote .Token}}
`

// render makes the kubeconfig.
func (c credentials) render() ([]byte, error) {
	parsed, err := template.New("kubeconfig").Funcs(template.FuncMap{"quote": quote}).Parse(kubeconfigText)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = parsed.Execute(&text, c)
	return text.Bytes(), err
}

// readCredentials makes the kubeconfig of what this process has now. A token or an
// authority that is missing is an error: kubeconfigs that worked are not replaced by
// such that cannot.
func (s Settings) readCredentials() ([]byte, error) {
	if s.Kubeconfig != "" {
		return s.readKubeconfig()
	}
	c := credentials{Server: s.Server, SkipTLSVerify: s.SkipTLSVerify, Namespace: s.Namespace}
	token, err := s.token()
	if err != nil {
		return nil, err
	}
	c.Token = token
	if !s.SkipTLSVerify && strings.HasPrefix(s.Server, "https:") {
		if c.CA, err = s.authority(); err != nil {
			return nil, err
		}
	}
	if c.Namespace == "" {
		data, err := os.ReadFile(filepath.Join(s.ServiceAccount, "namespace"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("namespace of the service account: %w; set %s", err, namespaceVariable)
		}
		c.Namespace = strings.TrimSpace(string(data))
	}
	if c.Namespace == "" {
		c.Namespace = kube.DefaultNamespace
	}
	return c.render()
}

// readKubeconfig checks that the plugin will be able to use the file.
func (s Settings) readKubeconfig() ([]byte, error) {
	data, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w; correct the path or leave it out", err)
	}
	client, err := kube.NewClient(kube.Options{Kubeconfig: s.Kubeconfig, Getenv: func(string) string { return "" }})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	client.Close()
	return data, nil
}

func (s Settings) tokenFile() string { return filepath.Join(s.ServiceAccount, "token") }

func (s Settings) token() (string, error) {
	data, err := os.ReadFile(s.tokenFile())
	if err != nil {
		return "", fmt.Errorf("token of the service account: %w; a pod has it unless automountServiceAccountToken is false", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("token of the service account: %s is empty; restart the pod if it stays so", s.tokenFile())
	}
	return token, nil
}

func (s Settings) authority() (string, error) {
	data, err := os.ReadFile(s.CAFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w; correct the path, or set %s=true where the API server need not be verified",
			caFileVariable, err, skipVerifyVariable)
	}
	if block, _ := pem.Decode(data); block == nil || block.Type != "CERTIFICATE" {
		return "", fmt.Errorf("%s: %s has no certificate (PEM) in it; name the file with the authority of the API server",
			caFileVariable, s.CAFile)
	}
	return base64.StdEncoding.EncodeToString(data), nil
}

// TokenExpiry is when the service account's token ends, or zero if that cannot be
// told.
func (s Settings) TokenExpiry() time.Time {
	if s.Kubeconfig != "" {
		return time.Time{}
	}
	token, err := s.token()
	parts := strings.Split(token, ".")
	if err != nil || len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires int64 `json:"exp"` // seconds since 1970
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}

// Sources are the directories whose content the credentials are made of.
func (s Settings) Sources() []string {
	if s.Kubeconfig != "" {
		return []string{filepath.Dir(s.Kubeconfig)}
	}
	if s.SkipTLSVerify || filepath.Dir(s.CAFile) == filepath.Clean(s.ServiceAccount) {
		return []string{s.ServiceAccount}
	}
	return []string{s.ServiceAccount, filepath.Dir(s.CAFile)}
}
