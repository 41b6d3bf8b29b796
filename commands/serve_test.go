package commands

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func fine() error { return nil }

func ask(t *testing.T, o observed, method, path string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	o.handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Result(), w.Body.String()
}

func TestProbes(t *testing.T) {
	bad := func() error { return errors.New("caches are not filled") }
	for _, test := range []struct {
		name         string
		alive, ready func() error
		path         string
		status       int
		body         string
	}{
		{"alive", fine, bad, "/healthz", 200, "ok\n"},
		{"ready", bad, fine, "/readyz", 200, "ok\n"},
		{"stuck", bad, fine, "/healthz", 503, "caches are not filled\n"},
		{"not ready", fine, bad, "/readyz", 503, "caches are not filled\n"},
		{"something else", fine, fine, "/", 404, "404 page not found\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, body := ask(t, observed{newMetrics(), test.alive, test.ready}, "GET", test.path)
			if response.StatusCode != test.status || body != test.body {
				t.Errorf("%d %q, want %d %q", response.StatusCode, body, test.status, test.body)
			}
		})
	}
}

func TestOnlyReadsAreServed(t *testing.T) {
	o := observed{newMetrics(), fine, fine}
	for method, want := range map[string]int{"HEAD": 200, "POST": 405, "DELETE": 405} {
		if response, _ := ask(t, o, method, "/metrics"); response.StatusCode != want {
			t.Errorf("%s: %d, want %d", method, response.StatusCode, want)
		}
	}
}

func TestMetricsAreServed(t *testing.T) {
	m := newMetrics()
	m.counter("c_total", "Help.").add(3)
	stop, address := serveSomewhere(t, observed{m, fine, fine})
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	readMetrics(t, string(body)).want(t, map[string]float64{"c_total": 3})
	stop()
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("still listening after the end")
	}
}

// serveSomewhere starts a server on a port that is free.
func serveSomewhere(t *testing.T, o observed) (stop func(), address string) {
	t.Helper()
	var out strings.Builder
	log := slog.New(slog.NewTextHandler(&out, nil))
	stop, err := o.serve("127.0.0.1:0", log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	_, address, found := strings.Cut(out.String(), "address=")
	if !found {
		t.Fatalf("the log does not say where: %s", out.String())
	}
	return stop, strings.TrimSpace(address)
}

func TestAddressThatCannotBeUsed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, test := range map[string]struct{ address, remedy string }{
		"port in use":    {taken.Addr().String(), "another process has this port"},
		"no port":        {"127.0.0.1", "write it like :8080"},
		"no such port":   {"127.0.0.1:99999", "write it like :8080"},
		"not an address": {"nonsense:x", "write it like :8080"},
		"a bare port":    {"8080", "write it like :8080"},
	} {
		t.Run(name, func(t *testing.T) {
			stop, err := observed{newMetrics(), fine, fine}.serve(test.address, slog.New(slog.DiscardHandler))
			if err == nil {
				stop()
				t.Fatal("no error")
			}
			for _, word := range []string{"--listen", `"` + test.address + `"`, test.remedy} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not mention %q", err, word)
				}
			}
		})
	}
}

func TestNothingIsServedWithoutAnAddress(t *testing.T) {
	stop, err := observed{newMetrics(), fine, fine}.serve("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop()
}
