package ipam

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

const flatFileName = "whereabouts.conf"

// defaultFlatFiles is where the flat file is looked for, in this order, unless
// configuration_path names one that is there.
var defaultFlatFiles = []string{
	"/etc/kubernetes/cni/net.d/whereabouts.d/" + flatFileName,
	"/etc/cni/net.d/whereabouts.d/" + flatFileName,
	"/host/etc/cni/net.d/whereabouts.d/" + flatFileName,
}

// flatFile reads the first flat file that exists. None at all is an empty one:
// the network configuration may be enough.
func (p *configParser) flatFile(inline configSection) (configSection, error) {
	path, data, err := p.findFlatFile(inline)
	if err != nil || path == "" {
		return configSection{place: inIPAM}, err
	}
	if err := CheckJSON(data, path); err != nil {
		return configSection{}, err
	}
	if k := jsonKindOf(data); k != jsonObject {
		return configSection{}, invalidKey(path, "it is %s; it must be an object like an ipam object", k)
	}
	p.cfg.FlatFile = path
	return p.section(inIPAM, "", path, data), nil
}

// findFlatFile answers the path and content of the file, or "" if there is none.
func (p *configParser) findFlatFile(inline configSection) (string, []byte, error) {
	if v := inline.get("configuration_path"); !jsonEmpty(v.raw) {
		if err := v.check(); err != nil {
			return "", nil, err
		}
		named := strings.TrimSpace(inline.text("configuration_path"))
		path, data, err := p.readFlatFile(named)
		if err == nil {
			return path, data, nil
		}
		if !isMissing(err) {
			return "", nil, unreadableFile(path, err)
		}
		p.warnf("configuration_path %q does not exist; looking in the usual places", shortenValue(named))
	}
	for _, place := range defaultFlatFiles {
		path, data, err := p.readFlatFile(place)
		if err == nil {
			return path, data, nil
		}
		if !isMissing(err) {
			return "", nil, unreadableFile(path, err)
		}
	}
	return "", nil, nil
}

// readFlatFile reads a file, or the flat file in a directory.
func (p *configParser) readFlatFile(path string) (string, []byte, error) {
	data, err := p.ReadFile(path)
	if isDirectory(err) {
		path = filepath.Join(path, flatFileName)
		data, err = p.ReadFile(path)
	}
	return path, data, err
}

func isDirectory(err error) bool {
	return err != nil && (errors.Is(err, syscall.EISDIR) || strings.Contains(err.Error(), "is a directory"))
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func unreadableFile(path string, err error) error {
	return fmt.Errorf("%w: flat file %s cannot be read: %w; correct its permissions or remove it", ErrInvalid, path, err)
}
