package integration

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Manifests of older versions start node-slice-controller, as a file or as a subcommand.
// Both are the controller, with its metrics and probes.
func TestControllerByItsOldName(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	s.addNodes("node-a")
	s.define("default", "storage", s.sliced("storage", "10.5.0.0/26", "/26", nil))
	old := filepath.Join(t.TempDir(), "node-slice-controller")
	if err := os.Symlink(suite.Binary, old); err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]func() *controller{
		"file": func() *controller { return s.controlAs(old, "--listen", "127.0.0.1:0") },
		"subcommand": func() *controller {
			return s.controlAs(suite.Binary, "node-slice-controller", "--listen", "127.0.0.1:0")
		},
	} {
		r := start()
		url := s.served(r)
		for _, probe := range []string{"/healthz", "/readyz"} {
			s.eventually(name+": "+probe+" is fine", func() bool { code, _ := get(url + probe); return code == http.StatusOK })
		}
		s.settled("storage", "10.5.0.0/26=node-a")
		s.eventually(name+": the slice is counted", func() bool {
			_, text := get(url + "/metrics")
			return strings.Contains(text, `whereabouts_controller_slices_assigned{pool="storage"} 1`)
		})
		r.kill()
	}
}

// A controller that cannot reach the API server lives, and is not ready.
func TestControllerThatCannotReadIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSliceScene(t)
	denied := s.watched.Inject(testenv.Rule{
		Match: testenv.Match{Path: "/nodes$"}, Times: testenv.Always, Action: testenv.Answer(http.StatusForbidden),
	})
	url := s.served(s.controlAs(suite.Binary, "controller", "--listen", "127.0.0.1:0"))
	s.eventually("/readyz names what cannot be read", func() bool {
		code, text := get(url + "/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(text, "nodes") && strings.Contains(text, "403")
	})
	if code, text := get(url + "/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answers %d %s: a restart would not help", code, text)
	}
	denied.Remove()
	s.eventually("/readyz is fine", func() bool { code, _ := get(url + "/readyz"); return code == http.StatusOK })
}

var servedAt = regexp.MustCompile(`serving metrics and health.* address=(\S+)`)

// served waits until a controller tells where it serves metrics.
func (s *sliceScene) served(r *controller) string {
	s.t.Helper()
	url := ""
	s.eventually("the controller serves metrics", func() bool {
		if found := servedAt.FindStringSubmatch(r.log.String()); found != nil {
			url = "http://" + found[1]
		}
		return url != ""
	})
	return url
}

// get answers code 0 when there is no answer.
func get(url string) (code int, text string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}
