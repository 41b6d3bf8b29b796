package ipam

import (
	"errors"
	"maps"
	"strings"
	"syscall"
	"testing"
)

// with is the host with this environment.
func (h configHost) with(env map[string]string) configHost {
	h.env = env
	return h
}

// add is the host with one more file.
func (h configHost) add(path, content string) configHost {
	files := maps.Clone(h.files)
	if files == nil {
		files = map[string]string{}
	}
	files[path] = content
	h.files = files
	return h
}

func TestWhichFlatFileIsRead(t *testing.T) {
	const (
		first  = "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf"
		second = "/etc/cni/net.d/whereabouts.d/whereabouts.conf"
		third  = "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf"
		named  = `"configuration_path": "/opt/wb/site.conf"`
	)
	tests := []struct {
		name, conf string
		files      map[string]string
		want       string
		warning    string
	}{
		{"none", ``, nil, "", ""},
		{"the first place", ``, map[string]string{first: "{}", second: "{}", third: "{}"}, first, ""},
		{"the second place", ``, map[string]string{second: "{}", third: "{}"}, second, ""},
		{"the third place", ``, map[string]string{third: "{}"}, third, ""},
		{"a file where its directory should be", ``, map[string]string{first: isNoDir, second: "{}"}, second, ""},
		{"the one that is named", named, map[string]string{first: "{}", "/opt/wb/site.conf": "{}"}, "/opt/wb/site.conf", ""},
		{"in the directory that is named", `"configuration_path": "/opt/wb"`, map[string]string{first: "{}", "/opt/wb": isDir, "/opt/wb/whereabouts.conf": "{}"}, "/opt/wb/whereabouts.conf", ""},
		{"the named one is missing", named, map[string]string{second: "{}"}, second, `configuration_path "/opt/wb/site.conf" does not exist`},
		{"the named one is missing and there is no other", named, nil, "", "does not exist"},
		{"the named directory has none", `"configuration_path": "/opt/wb"`, map[string]string{"/opt/wb": isDir, second: "{}"}, second, `"/opt/wb" does not exist`},
		{"an empty name is none", `"configuration_path": ""`, map[string]string{second: "{}"}, second, ""},
		{"a name in the flat file itself is not followed", ``, map[string]string{second: `{"configuration_path": "/opt/wb/site.conf"}`, "/opt/wb/site.conf": "{}"}, second, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			conf := strings.TrimSuffix(`"range": "10.0.0.0/24", `+test.conf, ", ")
			cfg := configHost{files: test.files, env: inPod}.mustParse(t, conf)
			wantEqual(t, "FlatFile", cfg.FlatFile, test.want)
			if warnings := strings.Join(cfg.Warnings, "\n"); (warnings == "") != (test.warning == "") || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
		})
	}
}

func TestFlatFilesThatStopEverything(t *testing.T) {
	const named = `"configuration_path": "/opt/wb"`
	tests := []struct {
		name, conf, path, content string
		is                        error
		words                     []string
	}{
		{"not readable", ``, flatPath, isDenied, syscall.EACCES, []string{"flat file " + flatPath, "permission denied", "permissions"}},
		{"named and not readable", named, "/opt/wb", isDenied, syscall.EACCES, []string{"flat file /opt/wb", "permission denied"}},
		{"not JSON", ``, flatPath, "{\n\"range\": oops}", ErrDecode, []string{flatPath, "line 2, column 10", "correct it"}},
		{"named and not JSON", named, "/opt/wb", "root:x:0:0:root", ErrDecode, []string{"/opt/wb", "line 1, column 1"}},
		{"empty", ``, flatPath, "", ErrDecode, []string{flatPath, "ends too early"}},
		{"a list", ``, flatPath, "[]", ErrInvalid, []string{flatPath, "a list", "must be an object"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg, err := configHost{env: inPod}.add(test.path, test.content).parse(test.conf)
			if cfg != nil || !errors.Is(err, test.is) {
				t.Fatalf("%v, %v; want an error that wraps %v", cfg, err, test.is)
			}
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrDecode) {
				t.Errorf("%v has no CNI code", err)
			}
			wantWords(t, err.Error(), test.words...)
			if strings.Contains(err.Error(), "root") || strings.Contains(err.Error(), "oops") {
				t.Errorf("%v shows the file's content", err)
			}
		})
	}
}

func TestUnknownKeyOfTheFlatFile(t *testing.T) {
	cfg := flatHost(`{"rnage": "x"}`).with(inPod).mustParse(t, `"range": "10.0.0.0/24"`)
	wantEqual(t, "warnings", cfg.Warnings, []string{`unknown key "rnage" (in ` + flatPath + `) is ignored; did you mean "range"?`})
}

func TestFlatFileAloneIsEnough(t *testing.T) {
	cfg := flatHost(`{"range": "10.0.0.0/24", "datastore": "local"}`).mustParse(t, `"type": "whereabouts"`)
	wantEqual(t, "ranges", prefixesOf(cfg.Ranges), "10.0.0.0/24")
	wantEqual(t, "Datastore", cfg.Datastore, DatastoreLocal)
}
