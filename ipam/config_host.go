package ipam

import (
	"path/filepath"
	"strings"
)

// dropHostOnly takes out of a network configuration what only the host's own
// file may set: whoever may write a network definition does not choose which
// files of a host are written.
func (p *configParser) dropHostOnly(inline configSection) {
	for i := range configKeys {
		name := configKeys[i].name
		if v, given := inline.values[name]; given && v.key.hostOnly {
			p.warnf("%s in the network configuration is ignored: it names a directory of the host; set it in the flat file", name)
			delete(inline.values, name)
		}
	}
	if jsonKindOf(inline.get("log_file").raw) == jsonString && inline.has("log_file") && !logFilePermitted(inline.text("log_file")) {
		p.warnf("log_file %q in the network configuration is ignored: only absolute paths below /var/log or /tmp are permitted; "+
			"set it in the flat file", shortenValue(inline.text("log_file")))
		delete(inline.values, "log_file")
	}
}

func logFilePermitted(path string) bool {
	path = filepath.Clean(path)
	return strings.HasPrefix(path, "/var/log/") || strings.HasPrefix(path, "/tmp/")
}

// readHost reads what concerns this host: logs, directories, its name.
func (p *configParser) readHost(ipam configSection) {
	cfg := p.cfg
	if path := ipam.text("log_file"); filepath.IsAbs(path) {
		cfg.LogFile = filepath.Clean(path)
	} else if path != "" {
		p.warnf("log_file %q%s is ignored: it is not an absolute path", shortenValue(path), inFlatFile(ipam.get("log_file").from))
	}
	cfg.LogLevel = p.logLevel(ipam)
	cfg.RunDirectory = p.directory(ipam, "run_directory", "WHEREABOUTS_RUN_DIR", DefaultRunDirectory)
	cfg.StateDirectory = p.directory(ipam, "state_directory", "WHEREABOUTS_STATE_DIR", DefaultStateDirectory)
	cfg.CronExpression = strings.TrimSpace(ipam.text("reconciler_cron_expression"))
	cfg.Node = p.node()
}

func (p *configParser) logLevel(ipam configSection) string {
	found := ipam.text("log_level")
	switch level := strings.ToLower(strings.TrimSpace(found)); level {
	case "", "debug", "verbose", "error", "panic":
		return level
	case "info":
		return "verbose"
	}
	p.warnf("log_level %q%s is unknown and ignored; use debug, verbose, error or panic",
		shortenValue(found), inFlatFile(ipam.get("log_level").from))
	return ""
}

func (p *configParser) directory(ipam configSection, name, env, absent string) string {
	if path := p.Getenv(env); path != "" {
		return path
	}
	path := ipam.text(name)
	if path == "" {
		return absent
	}
	if !filepath.IsAbs(path) {
		p.warnf("%s %q%s is ignored: it is not an absolute path", name, shortenValue(path), inFlatFile(ipam.get(name).from))
		return absent
	}
	return filepath.Clean(path)
}

// node is the name of this node: the same one for every process on it.
func (p *configParser) node() string {
	if name := strings.TrimSpace(p.Getenv("NODENAME")); name != "" {
		return name
	}
	var files []string
	if p.cfg.FlatFile != "" {
		files = append(files, nodeNameBeside(p.cfg.FlatFile))
	}
	for _, flat := range defaultFlatFiles {
		files = append(files, nodeNameBeside(flat))
	}
	for _, file := range append(files, "/etc/hostname") {
		data, err := p.ReadFile(file)
		if name := strings.TrimSpace(string(data)); err == nil && name != "" {
			return name
		}
	}
	return ""
}

func nodeNameBeside(flat string) string {
	return filepath.Join(filepath.Dir(flat), "nodename")
}
