package installer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestInstallation(t *testing.T) {
	h := newHost(t)
	written := h.apply(t, h.installer())
	h.complete(t)
	if len(written) != 6 || !slices.Contains(written, "bin/whereabouts") {
		t.Errorf("written: %v", written)
	}
	target, err := os.Readlink(h.path("bin/whereabouts"))
	if err != nil || !strings.HasPrefix(target, ".whereabouts-v1-") || strings.Contains(target, "/") {
		t.Errorf("link to %q, %v", target, err)
	}
	if info, err := os.Stat(h.path("net.d/whereabouts.d")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
}

func TestFilesThatOthersMayRead(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	for mode, directory := range map[os.FileMode]os.FileMode{0o600: 0o700, 0o640: 0o750, 0o644: 0o755} {
		h := newHost(t)
		h.settings.Mode = mode
		h.apply(t, h.installer())
		h.complete(t)
		if info, err := os.Stat(h.path("net.d/whereabouts.d")); err != nil || info.Mode().Perm() != directory {
			t.Errorf("mode %o: directory %v, %v", mode, info.Mode(), err)
		}
	}
}

func TestVersionsWithStrangeNames(t *testing.T) {
	h := newHost(t)
	h.version = "v1.2+a/../b c"
	h.apply(t, h.installer())
	h.complete(t)
	if target, _ := os.Readlink(h.path("bin/whereabouts")); !strings.HasPrefix(target, ".whereabouts-v1.2+a_.._b_c-") {
		t.Errorf("link to %q", target)
	}
}

// unchanged fails the test if f changes a file, or makes or removes one.
func (h *host) unchanged(t *testing.T, f func()) {
	t.Helper()
	type state struct {
		inode uint64
		time  syscall.Timespec
	}
	look := func() map[string]state {
		all := map[string]state{}
		_ = filepath.Walk(h.root, func(path string, info os.FileInfo, err error) error {
			if err == nil {
				s := info.Sys().(*syscall.Stat_t)
				all[path] = state{s.Ino, s.Ctim}
			}
			return err
		})
		return all
	}
	before := look()
	f()
	for path, s := range look() {
		if before[path] != s {
			t.Errorf("%s has changed", path)
		}
		delete(before, path)
	}
	for path := range before {
		t.Errorf("%s is gone", path)
	}
}

func TestWhatIsAsItShouldBeIsNotTouched(t *testing.T) {
	h := newHost(t)
	i := h.installer()
	h.apply(t, i)
	h.unchanged(t, func() {
		for _, again := range []*Installer{i, h.installer()} {
			if written := h.apply(t, again); len(written) > 0 {
				t.Errorf("written: %v", written)
			}
		}
	})
}

func TestInstallationOverAnOlderOne(t *testing.T) {
	h := newHost(t)
	h.write(t, "bin/whereabouts", "older plugin")
	h.write(t, "bin/bridge", "another plugin")
	h.write(t, "net.d/10-main.conflist", "{}")
	h.write(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "apiVersion: v1\nusers: []\n")
	h.write(t, "net.d/whereabouts.d/whereabouts.conf", `{"datastore": "kubernetes", "reconciler_cron_expression": "30 4 * * *", "log_level": "debug"}`)
	h.write(t, "net.d/whereabouts.d/nodename", "other")
	h.apply(t, h.installer())
	h.complete(t)
	h.has(t, "net.d/whereabouts.d/whereabouts.conf", `"log_level": "debug"`)
	if text := h.read(t, "net.d/whereabouts.d/whereabouts.conf"); strings.Contains(text, "30 4") {
		t.Errorf("still once a day: %s", text)
	}
	if h.read(t, "bin/bridge") != "another plugin" || h.read(t, "net.d/10-main.conflist") != "{}" {
		t.Error("what belongs to others has changed")
	}
}

func TestUpgradeKeepsTheLastBinaryForAWhile(t *testing.T) {
	h := newHost(t)
	h.apply(t, h.installer())
	old, _ := os.Readlink(h.path("bin/whereabouts"))
	h.write(t, "binary", strings.Repeat("newer", 1000))
	i := h.installer()
	h.apply(t, i)
	h.complete(t)
	if !slices.Contains(h.list(t, "bin"), old) {
		t.Errorf("%s is gone at once: %v", old, h.list(t, "bin"))
	}
	h.now = h.now.Add(graceTime + time.Second)
	h.apply(t, i)
	h.complete(t)
	if got := h.list(t, "bin"); len(got) != 3 || slices.Contains(got, old) {
		t.Errorf("bin has %v", got)
	}
}

func TestBinaryOfAnotherInstallerThatIsAboutToLinkItStays(t *testing.T) {
	h := newHost(t)
	i := h.installer()
	h.apply(t, i)
	h.now = h.now.Add(2 * graceTime)
	h.write(t, "bin/.whereabouts-v2-0123456789ab", "x")
	for age, want := range map[time.Duration]int{0: 4, 2 * graceTime: 3} {
		at := h.now.Add(-age)
		if err := os.Chtimes(h.path("bin/.whereabouts-v2-0123456789ab"), at, at); err != nil {
			t.Fatal(err)
		}
		h.apply(t, i)
		if got := h.list(t, "bin"); len(got) != want {
			t.Errorf("at the age of %v: bin has %v", age, got)
		}
		h.write(t, "bin/.whereabouts-v2-0123456789ab", "x")
	}
}

func TestWhatSomebodyChangedIsPutBack(t *testing.T) {
	const d = "net.d/whereabouts.d/"
	for name, test := range map[string]struct {
		change func(*testing.T, *host)
		writes []string
	}{
		"link removed": {func(_ *testing.T, h *host) { os.Remove(h.path("bin/whereabouts")) }, []string{"bin/whereabouts"}},
		"link to something else": {func(t *testing.T, h *host) {
			os.Remove(h.path("bin/ip-control"))
			os.Symlink("x", h.path("bin/ip-control"))
		}, []string{"bin/ip-control"}},
		"link to a missing version": {func(t *testing.T, h *host) {
			os.Remove(h.path("bin/whereabouts"))
			os.Symlink(".whereabouts-v0-0", h.path("bin/whereabouts"))
		}, []string{"bin/whereabouts"}},
		"file in place of the link": {func(t *testing.T, h *host) { os.Remove(h.path("bin/whereabouts")); h.write(t, "bin/whereabouts", "x") }, []string{"bin/whereabouts"}},
		"binary removed":            {func(t *testing.T, h *host) { os.Remove(h.path("bin/" + h.target(t))) }, []string{"bin/VERSION"}},
		"binary changed":            {func(t *testing.T, h *host) { h.write(t, "bin/"+h.target(t), "x") }, []string{"bin/VERSION"}},
		"binary not executable":     {func(t *testing.T, h *host) { os.Chmod(h.path("bin/"+h.target(t)), 0o644) }, []string{"bin/VERSION"}},
		"kubeconfig removed":        {func(_ *testing.T, h *host) { os.Remove(h.settings.KubeconfigPath()) }, []string{d + "whereabouts.kubeconfig"}},
		"kubeconfig changed":        {func(t *testing.T, h *host) { h.write(t, d+"whereabouts.kubeconfig", "x") }, []string{d + "whereabouts.kubeconfig"}},
		"kubeconfig empty":          {func(t *testing.T, h *host) { h.write(t, d+"whereabouts.kubeconfig", "") }, []string{d + "whereabouts.kubeconfig"}},
		"everyone may read it":      {func(t *testing.T, h *host) { os.Chmod(h.settings.KubeconfigPath(), 0o644) }, []string{d + "whereabouts.kubeconfig"}},
		"token renewed":             {func(t *testing.T, h *host) { h.write(t, "account/token", "token-2") }, []string{d + "whereabouts.kubeconfig"}},
		"authority renewed":         {func(t *testing.T, h *host) { h.write(t, "account/ca.crt", certificate+"\n"+certificate) }, []string{d + "whereabouts.kubeconfig"}},
		"node's name changed":       {func(t *testing.T, h *host) { h.write(t, d+"nodename", "x") }, []string{d + "nodename"}},
		"our key removed":           {func(t *testing.T, h *host) { h.write(t, d+"whereabouts.conf", `{"log_level": "debug"}`) }, []string{d + "whereabouts.conf"}},
		"whole directory removed":   {func(t *testing.T, h *host) { os.RemoveAll(h.settings.Directory()) }, []string{d + "nodename", d + "whereabouts.conf", d + "whereabouts.kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			i := h.installer()
			h.apply(t, i)
			test.change(t, h)
			written := h.apply(t, i)
			want := strings.Split(strings.ReplaceAll(strings.Join(test.writes, " "), "VERSION", h.target(t)), " ")
			if !slices.Equal(written, want) {
				t.Errorf("written: %v, want %v", written, want)
			}
			h.complete(t)
		})
	}
}

// target is the name of the installed binary.
func (h *host) target(t *testing.T) string {
	t.Helper()
	target, err := os.Readlink(h.path("bin/whereabouts"))
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func TestTokenThatIsGoneForAMomentDestroysNothing(t *testing.T) {
	for _, token := range []string{"", "\n"} {
		h := newHost(t)
		i := h.installer()
		h.apply(t, i)
		h.write(t, "account/token", token)
		before := h.read(t, "net.d/whereabouts.d/whereabouts.kubeconfig")
		if _, err := i.Apply(); err == nil || !strings.Contains(err.Error(), "is empty") {
			t.Errorf("%q: error %v", token, err)
		}
		os.Remove(h.path("account/token"))
		os.Remove(h.settings.KubeconfigPath())
		if _, err := i.Apply(); err == nil {
			t.Errorf("%q: no error", token)
		}
		if after := h.read(t, "net.d/whereabouts.d/whereabouts.kubeconfig"); after != before {
			t.Errorf("%q: got %s, want %s", token, after, before)
		}
	}
}

func TestFlatFileThatDoesNotParseIsSetAside(t *testing.T) {
	h := newHost(t)
	h.write(t, "net.d/whereabouts.d/whereabouts.conf", "{ half")
	i := h.installer()
	h.apply(t, i)
	if got := h.read(t, "net.d/whereabouts.d/whereabouts.conf.unreadable"); got != "{ half" || len(h.warnings) != 1 {
		t.Errorf("set aside: %q, warnings %v", got, h.warnings)
	}
	os.Remove(h.path("net.d/whereabouts.d/whereabouts.conf.unreadable"))
	h.complete(t)
	h.write(t, "net.d/whereabouts.d/whereabouts.conf", "{ being edit")
	if _, err := i.Apply(); err == nil || !strings.Contains(err.Error(), "whereabouts.conf does not parse") {
		t.Errorf("error %v", err)
	}
	if got := h.read(t, "net.d/whereabouts.d/whereabouts.conf"); got != "{ being edit" {
		t.Errorf("it was replaced while somebody wrote it: %s", got)
	}
	h.now = h.now.Add(editTime + time.Minute)
	h.apply(t, i)
	os.Remove(h.path("net.d/whereabouts.d/whereabouts.conf.unreadable"))
	h.complete(t)
}

func TestOfTwoInstallersTheLaterOneHasItsWay(t *testing.T) {
	h := newHost(t)
	earlier := h.installer()
	h.apply(t, earlier)
	h.now = h.now.Add(-time.Hour) // a clock that was set back changes nothing
	other := hostAt(h.root)
	other.settings.ServiceAccount, other.settings.Mode = h.path("other"), h.settings.Mode
	other.now = h.now
	h.write(t, "other/token", "token-of-another-pod")
	h.write(t, "binary", strings.Repeat("other", 1000))
	later := other.installer()
	other.apply(t, later)
	want := h.target(t)
	for range 2 {
		if written := h.apply(t, earlier); len(written) > 0 {
			t.Errorf("the earlier one writes %v", written)
		}
		if written := h.apply(t, later); len(written) > 0 {
			t.Errorf("the later one writes %v", written)
		}
	}
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "token-of-another-pod")
	if got := h.target(t); got != want {
		t.Errorf("link to %s, want %s", got, want)
	}
	h.write(t, "other/token", "renewed")
	other.apply(t, later)
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "renewed")
	earlier.Reclaim() // its credentials are refused: its pod has gone
	h.apply(t, earlier)
	h.has(t, "net.d/whereabouts.d/whereabouts.kubeconfig", "token-1")
}

func TestRestartInTheSamePodGoesOnRenewing(t *testing.T) {
	h := newHost(t)
	h.apply(t, h.installer())
	h.now = h.now.Add(-time.Hour)
	i := h.installer()
	h.apply(t, i)
	h.write(t, "account/token", "token-2")
	h.apply(t, i)
	h.complete(t)
}
