package installer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	subDirectory   = "whereabouts.d"
	kubeconfigName = "whereabouts.kubeconfig"
	flatFileName   = "whereabouts.conf"
	nodeNameName   = "nodename"
)

// Installer puts Whereabouts on a node and keeps it there. It is for one goroutine.
type Installer struct {
	settings Settings
	binary   binary
	files    files
	now      func() time.Time
	log      func(message string, args ...any) // a warning, like slog.Logger.Warn

	started time.Time // stamp of this installer, see stampBegin
	applied bool      // at least once, with or without success
	linked  bool      // the links have led to our binary
	good    []byte    // the last credentials that could be read
	ours    bool      // the kubeconfig has been ours
	done    []string
}

// New makes an installer of the binary at a path. It does nothing yet. warn gets what
// is worth a warning in the log, with pairs of keys and values.
func New(s Settings, source, version string, now func() time.Time, warn func(string, ...any)) *Installer {
	return &Installer{
		settings: s, binary: binary{source: source, version: version}, now: now, log: warn, started: now().Round(0),
	}
}

// Directory is where the credentials and the flat file are, as this process sees it.
func (s Settings) Directory() string { return filepath.Join(s.ConfDir, subDirectory) }

// KubeconfigPath is where the kubeconfig is written, as this process sees it.
func (s Settings) KubeconfigPath() string { return filepath.Join(s.Directory(), kubeconfigName) }

func (s Settings) flatFilePath() string { return filepath.Join(s.Directory(), flatFileName) }

// FlatFileOnHost is the path of the flat file as the plugin sees it.
func (s Settings) FlatFileOnHost() string { return OnHost(s.flatFilePath()) }

func (s Settings) kubeconfigOnHost() string {
	if s.OnHost != "" {
		return s.OnHost
	}
	return OnHost(s.KubeconfigPath())
}

// ReadFile reads a file by the path that the plugin uses for it.
func (s Settings) ReadFile(onHost string) ([]byte, error) {
	if onHost == s.kubeconfigOnHost() {
		return os.ReadFile(s.KubeconfigPath())
	}
	for _, directory := range []string{s.Directory(), s.ConfDir} {
		if rest, err := filepath.Rel(OnHost(directory), onHost); err == nil && filepath.IsLocal(rest) {
			return os.ReadFile(filepath.Join(directory, rest))
		}
	}
	if InPod(s.ConfDir) {
		return os.ReadFile(hostPrefix + onHost)
	}
	return os.ReadFile(onHost)
}

func (i *Installer) changed(path string) { i.done = append(i.done, path) }

// Apply makes sure that everything is in place, and answers the paths that it had to
// write; none if it found all as it should be. The error has all that failed.
func (i *Installer) Apply() (written []string, err error) {
	i.done = nil
	err = errors.Join(
		i.atHome(confDirVariable, i.settings.ConfDir, i.configure),
		i.atHome(binDirVariable, i.settings.BinDir, i.installBinary),
	)
	i.applied = true
	return i.done, err
}

// Reclaim has the next Apply write our credentials, though an installer that started
// later wrote others: those are refused.
func (i *Installer) Reclaim() { i.ours = false }

// atHome calls f if a directory is there. One below /host that is missing is not
// mounted: what is written there would not reach the host.
func (i *Installer) atHome(variable, directory string, f func() error) error {
	info, err := os.Stat(directory)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !InPod(directory):
		i.files.before()
		err = os.MkdirAll(directory, 0o755)
	case err == nil && !info.IsDir():
		err = fmt.Errorf("%s is no directory; name one", directory)
	}
	if err != nil {
		return explain(variable, err)
	}
	return f()
}

// configure writes the files for the plugin. The kubeconfig comes before what names
// it.
func (i *Installer) configure() error {
	directory := i.settings.Directory()
	if err := i.files.directory(directory, i.settings.Mode); err != nil {
		return explain(confDirVariable, err)
	}
	return errors.Join(
		explain(confDirVariable, i.files.sweep(directory, i.now())),
		i.writeKubeconfig(),
		i.writeNodeName(),
		i.writeFlatFile(),
	)
}

func (i *Installer) keep(path string, content []byte) error {
	written, err := i.files.keep(path, content, i.settings.Mode)
	if written {
		i.changed(path)
	}
	return explain(confDirVariable, err)
}

// writeKubeconfig writes what can be read now, or what could be read last: a token
// that is missing for a moment is no reason to be without one that works.
func (i *Installer) writeKubeconfig() error {
	path := i.settings.KubeconfigPath()
	content, readErr := i.settings.readCredentials()
	if readErr == nil {
		i.good = content
	}
	if i.good == nil {
		return readErr
	}
	found, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(readErr, err)
	}
	old, started := splitStamp(found)
	switch {
	case err == nil && bytes.Equal(old, i.good):
		err = i.keep(path, found) // its mode may be another one
		i.ours, i.started = true, latest(i.started, started)
	case i.ours && started.After(i.started):
		return readErr
	default:
		if !i.ours {
			i.started = latest(i.started, started.Add(1))
		}
		if err = i.keep(path, stamped(i.good, i.started)); err == nil {
			i.ours = true
		}
	}
	return errors.Join(readErr, err)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (i *Installer) writeNodeName() error {
	if i.settings.NodeName == "" {
		return nil
	}
	return i.keep(filepath.Join(i.settings.Directory(), nodeNameName), []byte(i.settings.NodeName+"\n"))
}

// editTime is how long a flat file that does not parse may have been saved half.
const editTime = 10 * time.Second

// writeFlatFile keeps what an administrator wrote into the file. One that does not
// parse would stop every pod: it is set aside, unless somebody is writing it just
// now.
func (i *Installer) writeFlatFile() error {
	path := i.settings.flatFilePath()
	found, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	merged, err := i.settings.mergeFlatFile(found)
	if err == nil {
		return i.keep(path, merged)
	}
	if info, statErr := os.Stat(path); i.applied && statErr == nil && i.now().Sub(info.ModTime()) < editTime {
		return fmt.Errorf("%s does not parse: %w; if it stays so it will be set aside", path, err)
	}
	aside := path + ".unreadable"
	i.log("flat file does not parse and is set aside", "path", path, "as", aside, "error", err)
	if _, err := i.files.keep(aside, found, i.settings.Mode); err != nil {
		return explain(confDirVariable, err)
	}
	if merged, err = i.settings.mergeFlatFile(nil); err != nil {
		return err
	}
	return i.keep(path, merged)
}
