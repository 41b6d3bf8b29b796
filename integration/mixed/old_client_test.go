package mixed

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	"sigs.k8s.io/yaml"
)

// oldClient makes the older plugin's requests. Each says in its User-Agent for which
// pod it is made, so that the record of a proxy tells whose it was.
type oldClient struct {
	server, token, agent string
	http                 *http.Client
}

const agentPrefix = "older-plugin "

// newOldClient also answers the namespace that the kubeconfig names.
func newOldClient(kubeconfig, podRef string) (*oldClient, string, error) {
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users    []struct{ User struct{ Token string } }
		Contexts []struct{ Context struct{ Namespace string } }
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, "", fmt.Errorf("%s: %w", kubeconfig, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &oldClient{
		server: config.Clusters[0].Cluster.Server, token: config.Users[0].User.Token, agent: agentPrefix + podRef,
		http: &http.Client{Transport: transport},
	}, config.Contexts[0].Context.Namespace, nil
}

// oldStatus is an answer other than 2xx.
type oldStatus struct {
	code int
	body string
}

func (e *oldStatus) Error() string { return fmt.Sprintf("%d: %s", e.code, e.body) }

func ignore404(err error) error {
	if status, ok := err.(*oldStatus); ok && status.code == http.StatusNotFound {
		return nil
	}
	return err
}

// do answers the status, which is 0 if there was no answer.
func (c *oldClient) do(ctx context.Context, method, path string, body, out any) (int, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, content)
	if err != nil {
		return 0, err
	}
	request.Header.Set("User-Agent", c.agent)
	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/json-patch+json")
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return 0, err
	case response.StatusCode/100 != 2:
		return response.StatusCode, &oldStatus{response.StatusCode, string(data)}
	case out != nil:
		err = json.Unmarshal(data, out)
	}
	return response.StatusCode, err
}
