package commands

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/whereabouts-cni/whereabouts/ipam/node"
)

// installFigures are the metrics of the installer.
type installFigures struct {
	written  counterFamily
	failed   counterFamily
	complete gaugeFamily
	expiry   gaugeFamily
	working  gaugeFamily

	length, oldest, corrupt gaugeFamily
	replayed, replayFailed  counterFamily

	calls    counterFamily
	duration histogramFamily
}

func newInstallFigures(m *metrics) *installFigures {
	return &installFigures{
		written:  m.counter("whereabouts_install_files_written_total", "Files that were put in place because they were missing or not as they should be. The kubeconfig is written at each change of the token; others, after the start, tell of somebody who changes them.", "file"),
		failed:   m.counter("whereabouts_install_failures_total", "Looks at the installation after which something was not as it should be. The log has the reasons; it is tried again."),
		complete: m.gauge("whereabouts_install_last_success_timestamp_seconds", "When all files were found as they should be, or put in place, the last time, in seconds since 1970; zero before the first time."),
		expiry:   m.gauge("whereabouts_install_token_expiry_timestamp_seconds", "When the token of the service account ends, in seconds since 1970; zero if that is unknown. A time in the past means that nobody renews it."),
		working:  m.gauge("whereabouts_install_credentials_working", "Whether the API server accepted the node's credentials when it was asked last: 1, or 0 if not. At 0 pods on this node neither get addresses nor give them back."),

		length:       m.gauge("whereabouts_release_queue_length", "Addresses of ended pods on this node that could not be given back yet, by interface. Some that stay mean that the datastore cannot be reached."),
		oldest:       m.gauge("whereabouts_release_queue_oldest_timestamp_seconds", "When the oldest of the queued releases was queued, in seconds since 1970; zero if there are none."),
		corrupt:      m.gauge("whereabouts_release_queue_unreadable_files", "Files of the queue that could not be understood and were set aside. The reconcile role frees their addresses; the files may be removed."),
		replayed:     m.counter("whereabouts_release_queue_replayed_total", "Queued releases that were carried out by this process; calls of the plugin carry out others."),
		replayFailed: m.counter("whereabouts_release_queue_failures_total", "Tries to carry out a queued release that failed. The log has the reasons; they are tried again."),

		calls:    m.counter("whereabouts_calls_total", "Calls of the plugin on this node, by verb and result. Those that failed are repeated by the kubelet; a DEL that was queued will be carried out later.", "verb", "result"),
		duration: m.histogram("whereabouts_call_duration_seconds", "How long calls of the plugin took on this node, with the wait for others.", []float64{0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}, "verb"),
	}
}

// applied takes down one look at the installation.
func (f *installFigures) applied(written []string, err error, expiry, now time.Time) {
	for _, path := range written {
		name := filepath.Base(path)
		if strings.HasPrefix(name, ".") { // the name has the version, which would make a new series each time
			name = "binary"
		}
		f.written.add(1, name)
	}
	if err != nil {
		f.failed.add(1)
	} else {
		f.complete.set(seconds(now))
	}
	f.expiry.set(seconds(expiry))
}

// tried takes down whether the credentials work.
func (f *installFigures) tried(err error) {
	working := 1.0
	if err != nil {
		working = 0
	}
	f.working.set(working)
}

func (f *installFigures) backlog(b node.Backlog) {
	f.length.set(float64(b.Length))
	f.oldest.set(seconds(b.Oldest))
	f.corrupt.set(float64(b.Corrupt))
}

func (f *installFigures) replays(done, failed int) {
	f.replayed.add(float64(done))
	f.replayFailed.add(float64(failed))
}

// seconds is a time as metrics have it; zero is unknown.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
