package installer

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func (h *host) remove(t *testing.T) Removed {
	t.Helper()
	removed, err := Remove(h.settings, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return removed
}

func TestRemovalLeavesNothing(t *testing.T) {
	h := newHost(t)
	h.apply(t, h.installer())
	h.write(t, "binary", "another version")
	h.apply(t, h.installer())
	h.write(t, "bin/"+temporaryPrefix+"dead", "x")
	removed := h.remove(t)
	if bin, conf := h.list(t, "bin"), h.list(t, "net.d"); len(bin)+len(conf) > 0 {
		t.Errorf("left: %v, %v", bin, conf)
	}
	if len(removed.Left) > 0 || len(removed.Gone) != 8 || !slices.Contains(removed.Gone, h.path("bin/whereabouts")) {
		t.Errorf("it says %+v", removed)
	}
	if again := h.remove(t); len(again.Gone)+len(again.Left) > 0 {
		t.Errorf("the next time it says %+v", again)
	}
}

func TestRemovalLeavesWhatIsNotOurs(t *testing.T) {
	h := newHost(t)
	h.apply(t, h.installer())
	for _, name := range linkNames() {
		os.Remove(h.path("bin/" + name))
	}
	h.write(t, "bin/whereabouts", "older plugin")
	if err := os.Symlink("/opt/tools/ip-control", h.path("bin/ip-control")); err != nil {
		t.Fatal(err)
	}
	h.write(t, "bin/bridge", "another plugin")
	h.write(t, "net.d/10-main.conflist", "{}")
	h.write(t, "net.d/whereabouts.d/notes", "mine")
	h.write(t, "net.d/whereabouts.d/whereabouts.conf", `{"datastore": "kubernetes", "kubernetes": {"kubeconfig": "x"}, "log_level": "debug"}`)
	removed := h.remove(t)
	if got, want := h.list(t, "bin"), []string{"bridge", "ip-control", "whereabouts"}; !slices.Equal(got, want) {
		t.Errorf("bin has %v, want %v", got, want)
	}
	if got, want := h.list(t, "net.d/whereabouts.d"), []string{"notes", "whereabouts.conf"}; !slices.Equal(got, want) {
		t.Errorf("whereabouts.d has %v, want %v", got, want)
	}
	if text := strings.Join(strings.Fields(h.read(t, "net.d/whereabouts.d/whereabouts.conf")), ""); text != `{"log_level":"debug"}` {
		t.Errorf("flat file has %s", text)
	}
	want := []string{"bin/ip-control", "bin/whereabouts", "net.d/whereabouts.d", "net.d/whereabouts.d/whereabouts.conf"}
	if got := h.names(removed.Left); !slices.Equal(got, want) {
		t.Errorf("it says that it left %v, want %v", got, want)
	}
}

func TestRemovalWhereNothingIs(t *testing.T) {
	h := hostAt(t.TempDir())
	if removed := h.remove(t); len(removed.Gone)+len(removed.Left) > 0 {
		t.Errorf("it says %+v", removed)
	}
}
