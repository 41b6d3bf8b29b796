package main

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestQuantiles(t *testing.T) {
	var hundred sample
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	for name, test := range map[string]struct {
		sample      sample
		median, p99 time.Duration
	}{
		"nothing":  {nil, 0, 0},
		"one":      {sample{7}, 7, 7},
		"unsorted": {sample{3, 1, 2}, 2, 3},
		"even":     {sample{1, 2, 3, 4}, 2, 4},
		"hundred":  {hundred, 50, 99},
	} {
		t.Run(name, func(t *testing.T) {
			if m, p := test.sample.median(), test.sample.p99(); m != test.median || p != test.p99 {
				t.Errorf("median %d and p99 %d, want %d and %d", m, p, test.median, test.p99)
			}
		})
	}
}

func TestAtOnceCallsEachOnceAndNotTooManyAtATime(t *testing.T) {
	var running, most atomic.Int64
	called := make([]atomic.Int64, 50)
	atOnce(len(called), 4, func(i int) {
		now := running.Add(1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		called[i].Add(1)
		time.Sleep(time.Millisecond)
		running.Add(-1)
	})
	for i := range called {
		if n := called[i].Load(); n != 1 {
			t.Errorf("%d was called %d times", i, n)
		}
	}
	if most.Load() > 4 {
		t.Errorf("%d ran at once, want at most 4", most.Load())
	}
}

func TestAlternateLetsNeitherAlwaysGoFirst(t *testing.T) {
	var order []int
	alternate(4, func(who int) { order = append(order, who) })
	if want := []int{0, 1, 1, 0, 0, 1, 1, 0}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestBatchesInALog(t *testing.T) {
	log := `time=2026-01-02T03:04:05.678Z level=INFO msg="carried out calls" verb=ADD network=net-a calls=12 replayed=0 duration=31ms
time=2026-01-02T03:04:05.680Z level=INFO msg=assigned verb=ADD network=net-a calls=9
time=2026-01-02T03:04:05.690Z level=INFO msg="carried out calls" verb=ADD container="a b" calls=1 replayed=3 duration=8ms
`
	if got, want := batches([]byte(log)), []int{12, 1}; !slices.Equal(got, want) {
		t.Errorf("batches %v, want %v", got, want)
	}
}

// added is an ADD that answered so.
func added(pod, stdout string, err error) outcome {
	return outcome{call: call{verb: "ADD", pod: pod}, stdout: []byte(stdout), err: err}
}

func given(pod string, addresses ...string) outcome {
	return added(pod, `{"cniVersion":"1.0.0","ips":[{"address":"`+strings.Join(addresses, `"},{"address":"`)+`"}]}`, nil)
}

func TestGranted(t *testing.T) {
	for name, test := range map[string]struct {
		adds []outcome
		held int
		want string // in the error; "" for none
	}{
		"different":         {[]outcome{given("a", "10.0.0.1/24"), given("b", "10.0.0.2/24")}, 2, ""},
		"both families":     {[]outcome{given("a", "10.0.0.1/24", "fd00::1/64")}, 2, ""},
		"twice":             {[]outcome{given("a", "10.0.0.1/24"), given("b", "10.0.0.1/24")}, 1, "10.0.0.1 was given to a-sandbox and to b-sandbox"},
		"twice in one call": {[]outcome{given("a", "10.0.0.1/24", "10.0.0.1/24")}, 1, "was given to a-sandbox and to a-sandbox"},
		"failed":            {[]outcome{added("a", "", errors.New("exit status 1")), given("b", "10.0.0.2/24")}, 1, "exit status 1"},
		"no address":        {[]outcome{added("a", `{"cniVersion":"1.0.0"}`, nil)}, 0, "without an address"},
		"no JSON":           {[]outcome{added("a", "hello", nil)}, 0, "its result"},
	} {
		t.Run(name, func(t *testing.T) {
			held, err := granted(test.adds)
			if len(held) != test.held {
				t.Errorf("held %v, want %d", held, test.held)
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	both := holders{a: "one", b: "two"}
	for name, test := range map[string]struct {
		got  holders
		want holders
		fine bool
	}{
		"same":         {both, both, true},
		"nothing":      {nil, nil, true},
		"missing":      {holders{a: "one"}, both, false},
		"left over":    {both, holders{a: "one"}, false},
		"another's":    {holders{a: "one", b: "one"}, both, false},
		"all are left": {both, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := compare("the pools", test.got, test.want); (err == nil) != test.fine {
				t.Errorf("entries: error %v, fine is %t", err, test.fine)
			}
			names := map[string]string{}
			for address, container := range test.got {
				names[reservationName(address)] = container
			}
			if err := compareNames(names, test.want); (err == nil) != test.fine {
				t.Errorf("reservations: error %v, fine is %t", err, test.fine)
			}
		})
	}
}

func TestOffset(t *testing.T) {
	for _, test := range []struct{ base, key, want string }{
		{"10.0.0.0", "1", "10.0.0.1"},
		{"10.0.0.4", "256", "10.0.1.4"},
		{"fd00::", "18446744073709551616", "fd00:0:0:1::"},
		{"255.255.255.255", "1", ""},
		{"10.0.0.0", "-1", ""},
		{"10.0.0.0", "x", ""},
	} {
		got, ok := offset(netip.MustParseAddr(test.base), test.key)
		if ok != (test.want != "") || ok && got.String() != test.want {
			t.Errorf("%s + %s is %v %t, want %q", test.base, test.key, got, ok, test.want)
		}
	}
}

func TestReport(t *testing.T) {
	r := &report{Machine: machine{CPU: "Some CPU", Cores: 2, Kernel: "6.1", Go: "go1.26", Load: "0.10 0.20 0.30"}}
	figures := table{Title: "Start-up", Note: "Of a process.", Columns: []string{"call", "median", "rate", "/ floor"}}
	figures.add("VERSION", milliseconds(5250*time.Microsecond), perSecond(17), over(6, 4))
	figures.add("failed", milliseconds(0), none, over(0, 4))
	r.Tables = append(r.Tables, figures)
	for format, want := range map[string][]string{
		"text":     {"Some CPU, 2 cores", "VERSION  5.2 ms  17/s     1.50", "failed        -     -        -", "No call failed"},
		"markdown": {"### Start-up", "|---|---:|---:|---:|", "| VERSION | 5.2 ms | 17/s | 1.50 |", "| failed | - | - | - |"},
		"json":     {`"unit": "per second"`, `"value": 5.25`, "null"},
	} {
		var out bytes.Buffer
		if err := r.write(&out, format); err != nil {
			t.Fatal(err)
		}
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s lacks %q:\n%s", format, part, out.String())
			}
		}
	}
	r.Problems = []string{"10.0.0.1 was given twice"}
	if text := r.document(false); strings.Contains(text, "No call failed") || !strings.Contains(text, r.Problems[0]) {
		t.Errorf("a problem is not told:\n%s", text)
	}
}

func TestBusy(t *testing.T) {
	for load, want := range map[string]bool{"0.50 9 9": false, "1.01 0 0": true, "12.00 1 1": true, "unknown": false} {
		if got := (machine{Cores: 2, Load: load}).busy(); got != want {
			t.Errorf("busy with load %s: %t", load, got)
		}
	}
}

func TestOptions(t *testing.T) {
	for line, want := range map[string]string{
		"":                     "",
		"-short -format json":  "",
		"--only start,single":  "",
		"-records 0,7":         "",
		"-format xml":          "text, markdown, json",
		"-only start,nonsense": "nonsense",
		"-only peer":           "-peer",
		"-records 1,x":         `"x"`,
		"-records -1":          "-1",
		"surplus":              "surplus",
		"-nonsense":            "nonsense",
	} {
		var stderr bytes.Buffer
		_, err := parseOptions(strings.Fields(line), &stderr)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", line, err, want)
		}
	}
}
