package ipam

import (
	"strings"
	"testing"
)

func TestLogFile(t *testing.T) {
	tests := []struct {
		name, inline, flat, want, warning string
	}{
		{"below /var/log", "/var/log/w.log", "", "/var/log/w.log", ""},
		{"below /tmp", "/tmp/a/../w.log", "", "/tmp/w.log", ""},
		{"elsewhere", "/etc/cron.d/w", "", "", `"/etc/cron.d/w"`},
		{"out of /var/log", "/var/log/../../etc/passwd", "", "", "only absolute paths below /var/log or /tmp"},
		{"/var/log itself", "/var/log/", "", "", "ignored"},
		{"a name that begins like it", "/var/logs/w", "", "", "ignored"},
		{"relative", "var/log/w.log", "", "", "ignored"},
		{"the flat file may say any", "", "/opt/w.log", "/opt/w.log", ""},
		{"the flat file may not be relative", "", "w.log", "", "not an absolute path"},
		{"the flat file stands in for one that is not permitted", "/etc/w", "/opt/w.log", "/opt/w.log", `"/etc/w"`},
		{"a permitted one wins", "/var/log/w.log", "/opt/w.log", "/var/log/w.log", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := flatHost(`{"log_file": "`+test.flat+`"}`).with(inPod).
				mustParse(t, `"range": "10.0.0.0/24", "log_file": "`+test.inline+`"`)
			wantEqual(t, "LogFile", cfg.LogFile, test.want)
			if warnings := strings.Join(cfg.Warnings, "\n"); (warnings == "") != (test.warning == "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
		})
	}
}

func TestLogLevel(t *testing.T) {
	for written, want := range map[string]string{
		"debug": "debug", "Verbose": "verbose", "ERROR": "error", " panic ": "panic", "info": "verbose", "": "",
	} {
		cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "log_level": "`+written+`"`)
		wantEqual(t, "level of "+written, cfg.LogLevel, want)
		wantEqual(t, "warnings about "+written, cfg.Warnings, nil)
	}
	cfg := configHost{env: inPod}.mustParse(t, `"range": "10.0.0.0/24", "log_level": "loud"`)
	wantEqual(t, "level of loud", cfg.LogLevel, "")
	wantWords(t, strings.Join(cfg.Warnings, "\n"), "log_level", `"loud"`, "use debug, verbose, error or panic")
}

// A network definition never chooses directories of the host.
func TestDirectories(t *testing.T) {
	both := map[string]string{"KUBERNETES_SERVICE_HOST": "x", "WHEREABOUTS_RUN_DIR": "/env/run", "WHEREABOUTS_STATE_DIR": "/env/state"}
	const flat = `{"run_directory": "/flat/run", "state_directory": "/flat/state/"}`
	tests := []struct {
		name, conf, flat string
		env              map[string]string
		run, state       string
		warnings         []string
	}{
		{"the environment wins", ``, flat, both, "/env/run", "/env/state", nil},
		{"the flat file", ``, flat, inPod, "/flat/run", "/flat/state", nil},
		{
			"not inline", `, "run_directory": "/etc", "stateDirectory": "/etc"`, flat, inPod, "/flat/run", "/flat/state",
			[]string{"run_directory in the network configuration is ignored", "state_directory in the network configuration is ignored"},
		},
		{"inline of the wrong type", `, "run_directory": 5`, flat, inPod, "/flat/run", "/flat/state", []string{"run_directory in the network"}},
		{
			"not relative", ``, `{"run_directory": "run", "state_directory": "state"}`, inPod, DefaultRunDirectory, DefaultStateDirectory,
			[]string{`run_directory "run"`, `state_directory "state"`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := flatHost(test.flat).with(test.env).mustParse(t, `"range": "10.0.0.0/24"`+test.conf)
			wantEqual(t, "RunDirectory", cfg.RunDirectory, test.run)
			wantEqual(t, "StateDirectory", cfg.StateDirectory, test.state)
			wantEqual(t, "number of warnings", len(cfg.Warnings), len(test.warnings))
			wantWords(t, strings.Join(cfg.Warnings, "\n"), test.warnings...)
		})
	}
}

func TestNode(t *testing.T) {
	const (
		site  = `, "configuration_path": "/opt/wb/site.conf"`
		usual = "/etc/cni/net.d/whereabouts.d/nodename"
	)
	all := map[string]string{
		"/opt/wb/site.conf": "{}", "/opt/wb/nodename": "site\n", usual: " usual \n", "/etc/hostname": "host\n",
	}
	named := map[string]string{"KUBERNETES_SERVICE_HOST": "x", "NODENAME": " env "}
	without := func(paths ...string) map[string]string {
		h := configHost{}
		for path, content := range all {
			h = h.add(path, content)
		}
		for _, path := range paths {
			delete(h.files, path)
		}
		return h.files
	}
	tests := []struct {
		name, conf string
		files, env map[string]string
		want       string
	}{
		{"the environment wins", site, all, named, "env"},
		{"beside the flat file", site, all, inPod, "site"},
		{"in a usual place without a flat file", ``, all, inPod, "usual"},
		{"in a usual place when there is none beside the flat file", site, without("/opt/wb/nodename"), inPod, "usual"},
		{"the host's name", site, without("/opt/wb/nodename", usual), inPod, "host"},
		{"an empty file is none", ``, configHost{files: without()}.add(usual, "\n").files, inPod, "host"},
		{"an unreadable file is none", ``, configHost{files: without()}.add(usual, isDenied).files, inPod, "host"},
		{"unknown", ``, nil, inPod, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := configHost{files: test.files, env: test.env}.mustParse(t, `"range": "10.0.0.0/24"`+test.conf)
			wantEqual(t, "Node", cfg.Node, test.want)
		})
	}
}
