package installer

import "testing"

const oursIndented = `{
  "datastore": "kubernetes",
  "kubernetes": {
    "kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"
  }
}
`

func TestFlatFile(t *testing.T) {
	const kubernetes = `"datastore":"kubernetes","kubernetes":{"kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}`
	for name, test := range map[string]struct {
		found    string
		change   func(*Settings)
		want     string // as it is written, or compact
		verbatim bool
	}{
		"none":                        {want: oursIndented, verbatim: true},
		"empty":                       {found: " \n", want: oursIndented, verbatim: true},
		"ours":                        {found: oursIndented, want: oursIndented, verbatim: true},
		"ours, in another form":       {found: "{ " + kubernetes + " }", want: "{ " + kubernetes + " }", verbatim: true},
		"an older installer's":        {found: `{"datastore": "kubernetes", "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}, "reconciler_cron_expression": "30 4 * * *"}`, want: "{" + kubernetes + "}"},
		"an administrator's keys":     {found: `{"log_file": "/var/log/w.log", "exclude": ["10.0.0.0/30"]}`, want: "{" + kubernetes + `,"exclude":["10.0.0.0/30"],"log_file":"/var/log/w.log"}`},
		"a schedule somebody chose":   {found: `{"reconciler_cron_expression": "0 * * * *"}`, want: "{" + kubernetes + `,"reconciler_cron_expression":"0 * * * *"}`},
		"a schedule in the variable":  {found: `{"reconcilerCronExpression": "0 * * * *"}`, change: func(s *Settings) { s.Schedule = "5 * * * *" }, want: "{" + kubernetes + `,"reconciler_cron_expression":"5 * * * *"}`},
		"once a day, in the variable": {change: func(s *Settings) { s.Schedule = olderCron }, want: "{" + kubernetes + `,"reconciler_cron_expression":"30 4 * * *"}`},
		"another store":               {found: `{"datastore": "etcd", "etcd_host": "h"}`, want: "{" + kubernetes + `,"etcd_host":"h"}`},
		"other spellings of our keys": {found: `{"dataStore": "etcd", "Kubernetes": {"kubeConfig": "/x", "k8s_api_root": "y"}}`, want: `{"datastore":"kubernetes","kubernetes":{"k8s_api_root":"y","kubeconfig":"/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}}`},
		"kubernetes is no object":     {found: `{"kubernetes": 7}`, want: "{" + kubernetes + "}"},
		"large numbers stay exact":    {found: `{"x": 12345678901234567890}`, want: "{" + kubernetes + `,"x":12345678901234567890}`},
		"another path on the host":    {change: func(s *Settings) { s.OnHost = "/k3s/w" }, want: `{"datastore":"kubernetes","kubernetes":{"kubeconfig":"/k3s/w"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			s := Settings{ConfDir: "/host/etc/cni/net.d"}
			if test.change != nil {
				test.change(&s)
			}
			got, err := s.mergeFlatFile([]byte(test.found))
			if err != nil {
				t.Fatal(err)
			}
			if text := string(got); test.verbatim && text != test.want {
				t.Errorf("got %s, want %s", text, test.want)
			}
			parsed, err := parseObject(got)
			if want, wantErr := parseObject([]byte(test.want)); err != nil || wantErr != nil || !parsed.same(want) {
				t.Errorf("got %s, %v, want %s, %v", got, err, test.want, wantErr)
			}
			again, err := s.mergeFlatFile(got)
			if err != nil || string(again) != string(got) {
				t.Errorf("the next time it is %s, %v", again, err)
			}
		})
	}
}

func TestFlatFileThatIsNone(t *testing.T) {
	for _, text := range []string{"{", "null", "[]", `"x"`, `{"a": 1} {`, "a: b"} {
		if got, err := (Settings{}).mergeFlatFile([]byte(text)); err == nil {
			t.Errorf("%s: got %s and no error", text, got)
		}
	}
}

func TestFlatFileWithoutOurKeys(t *testing.T) {
	for name, test := range map[string]struct{ found, want string }{
		"ours alone":                {oursIndented, ""},
		"an older installer's":      {`{"datastore": "kubernetes", "reconciler_cron_expression": "30 4 * * *"}`, ""},
		"the variable's schedule":   {`{"reconciler_cron_expression": "1 * * * *"}`, ""},
		"somebody's schedule":       {`{"reconciler_cron_expression": "2 * * * *"}`, `{"reconciler_cron_expression":"2 * * * *"}`},
		"somebody's keys":           {`{"datastore": "kubernetes", "log_level": "debug"}`, `{"log_level":"debug"}`},
		"somebody's key below ours": {`{"kubernetes": {"kubeconfig": "x", "k8s_api_root": "y"}}`, `{"kubernetes":{"k8s_api_root":"y"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (Settings{Schedule: "1 * * * *"}).withoutOurs([]byte(test.found))
			if err != nil {
				t.Fatal(err)
			}
			if test.want == "" {
				if got != nil {
					t.Errorf("got %s, want nothing", got)
				}
				return
			}
			have, _ := parseObject(got)
			if want, _ := parseObject([]byte(test.want)); len(have) == 0 || !have.same(want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func FuzzMergedFlatFileIsStable(f *testing.F) {
	for _, seed := range []string{"", "{}", oursIndented, `{"Data_store": 1, "kubernetes": null}`, `{"a<": "\u003c"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := Settings{ConfDir: "/host/etc/cni/net.d", Schedule: "1 * * * *"}
		once, err := s.mergeFlatFile(text)
		if err != nil {
			return
		}
		twice, err := s.mergeFlatFile(once)
		if err != nil || string(twice) != string(once) {
			t.Errorf("%q, then %q, %v", once, twice, err)
		}
	})
}
