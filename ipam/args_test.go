package ipam

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestPodOfArgs(t *testing.T) {
	cfg := configHost{env: inPod, args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=u-1"}.
		mustParse(t, `"range": "10.0.0.0/24"`)
	wantEqual(t, "Pod", cfg.Pod, PodArgs{Namespace: "ns", Name: "pod-1", UID: "u-1"})
	wantEqual(t, "Ref", cfg.Pod.Ref(), "ns/pod-1")
	wantEqual(t, "ArgsErr", cfg.ArgsErr, nil)
}

func TestRefNeedsNameAndNamespace(t *testing.T) {
	wantEqual(t, "no name", PodArgs{Namespace: "ns"}.Ref(), "")
	wantEqual(t, "no namespace", PodArgs{Name: "pod", UID: "u"}.Ref(), "")
	wantEqual(t, "neither", PodArgs{}.Ref(), "")
}

func TestWhatArgsMayHold(t *testing.T) {
	tests := []struct {
		args  string
		words []string // of the error; none for nil
	}{
		{"", nil},
		{";", nil},
		{"IP=10.0.0.5;", nil},
		{"K8S_POD_NAME=", nil},
		{"FOO=1;IgnoreUnknown=1", nil},
		{"IgnoreUnknown=true;FOO=1;BAR=2", nil},
		{"IgnoreUnknown=True;FOO=a=b", nil},
		{"FOO=1", []string{`"FOO=1"`, "unknown", "IgnoreUnknown=1"}},
		{"IgnoreUnknown=0;FOO=1;BAR=2", []string{`"FOO=1", "BAR=2"`, "IgnoreUnknown=1"}},
		{"IgnoreUnknown=false;FOO=1", []string{`"FOO=1"`}},
		{"k8s_pod_name=a", []string{`"k8s_pod_name=a"`, "unknown"}},
		{"K8S_POD_NAME", []string{`"K8S_POD_NAME"`, "NAME=VALUE"}},
		{"IgnoreUnknown=1;nonsense", []string{`"nonsense"`, "NAME=VALUE"}},
		{"=1", []string{`"=1"`, "NAME=VALUE"}},
		{"IgnoreUnknown=maybe", []string{"IgnoreUnknown", `"maybe"`, "IgnoreUnknown=1"}},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			h := configHost{env: inPod, args: test.args + ";K8S_POD_NAME=p;K8S_POD_NAMESPACE=n"}
			cfg := h.mustParse(t, `"range": "10.0.0.0/24"`)
			wantEqual(t, "Ref", cfg.Pod.Ref(), "n/p") // DEL goes on with what is known
			if test.words == nil {
				wantEqual(t, "ArgsErr", cfg.ArgsErr, nil)
				return
			}
			if !errors.Is(cfg.ArgsErr, ErrArgs) {
				t.Fatalf("ArgsErr %v does not wrap ErrArgs", cfg.ArgsErr)
			}
			wantWords(t, cfg.ArgsErr.Error(), append(test.words, "CNI_ARGS")...)
		})
	}
}

func TestGatewaysOfArgs(t *testing.T) {
	cfg := configHost{env: inPod, args: "GATEWAY=10.0.0.1, fd00::1,010.0.0.1,"}.mustParse(t, `"range": "10.0.0.0/24"`)
	wantEqual(t, "ArgGateways", cfg.ArgGateways, mustAddrs("10.0.0.1", "fd00::1"))
}

func TestRequestedAddresses(t *testing.T) {
	const ranges = `"ipam": {"range": "10.0.0.0/24"}`
	tests := []struct{ name, args, conf, want string }{
		{"none", "", `{` + ranges + `}`, ""},
		{"CNI_ARGS", "IP=10.0.0.5/24,fd00::5, 010.0.0.6", `{` + ranges + `}`, "10.0.0.5 24 CNI_ARGS IP, fd00::5 -1 CNI_ARGS IP, 10.0.0.6 -1 CNI_ARGS IP"},
		{"runtimeConfig", "", `{` + ranges + `, "runtimeConfig": {"ips": ["10.0.0.5/24", "10.0.0.6"]}}`, "10.0.0.5 24 runtimeConfig.ips, 10.0.0.6 -1 runtimeConfig.ips"},
		{"args.cni", "", `{` + ranges + `, "args": {"cni": {"ips": ["10.0.0.5"]}}}`, "10.0.0.5 -1 args.cni.ips"},
		{"a single string", "", `{` + ranges + `, "runtimeConfig": {"ips": "10.0.0.5"}, "args": {"cni": {"ips": "10.0.0.6/24"}}}`, "10.0.0.5 -1 runtimeConfig.ips, 10.0.0.6 24 args.cni.ips"},
		{"empty lists", "IP=", `{` + ranges + `, "runtimeConfig": {"ips": []}, "args": {"cni": {"ips": null}}}`, ""},
		{"all three in order", "IP=10.0.0.7", `{` + ranges + `, "runtimeConfig": {"ips": ["10.0.0.5"]}, "args": {"cni": {"ips": ["10.0.0.6"]}}}`, "10.0.0.7 -1 CNI_ARGS IP, 10.0.0.5 -1 runtimeConfig.ips, 10.0.0.6 -1 args.cni.ips"},
		{"the same one counts once", "IP=10.0.0.5", `{` + ranges + `, "runtimeConfig": {"ips": ["10.0.0.6", "10.0.0.5/24"]}, "args": {"cni": {"ips": ["10.0.0.5/16"]}}}`, "10.0.0.5 24 CNI_ARGS IP, 10.0.0.6 -1 runtimeConfig.ips"},
		{"equal to a fixed one", "IP=10.0.0.5", `{"ipam": {"range": "10.0.0.0/24", "addresses": [{"address": "10.0.0.5/24"}]}}`, "10.0.0.5 -1 CNI_ARGS IP"},
		{"on the gateway and excluded", "IP=10.0.0.1", `{"ipam": {"range": "10.0.0.0/24", "gateway": "10.0.0.1", "exclude": ["10.0.0.1"]}}`, "10.0.0.1 -1 CNI_ARGS IP"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := configHost{env: inPod, args: test.args}.mustParse(t, test.conf)
			var got []string
			for _, r := range cfg.Requested {
				got = append(got, fmt.Sprint(r.Addr, " ", r.Bits, " ", r.Source))
			}
			wantEqual(t, "Requested", strings.Join(got, ", "), test.want)
		})
	}
}

func TestARequestedOrFixedAddressAloneIsEnough(t *testing.T) {
	for _, test := range []struct{ args, conf string }{
		{"IP=10.0.0.5", `{"ipam": {}}`},
		{"", `{"ipam": {}, "runtimeConfig": {"ips": ["10.0.0.5"]}}`},
		{"", `{"ipam": {}, "args": {"cni": {"ips": "10.0.0.5"}}}`},
		{"", `{"ipam": {"addresses": [{"address": "10.0.0.5"}]}}`},
	} {
		configHost{env: inPod, args: test.args}.mustParse(t, test.conf)
	}
}

// The known pairs are read whatever else is in the text, and the answer is
// always the same.
func FuzzParseArgs(f *testing.F) {
	for _, seed := range []string{"", "IP=1", "IgnoreUnknown=1;A=B", ";;=;", "A", "IP=10.0.0.1,,;GATEWAY=x", "IgnoreUnknown=\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, args string) {
		values, err := parseArgs(args + ";K8S_POD_NAME=the-pod")
		if values["K8S_POD_NAME"] != "the-pod" {
			t.Errorf("%q hides the pod: %v", args, values)
		}
		if err != nil && !errors.Is(err, ErrArgs) {
			t.Errorf("%v does not wrap ErrArgs", err)
		}
		again, errAgain := parseArgs(args + ";K8S_POD_NAME=the-pod")
		if !reflect.DeepEqual(values, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("%q: %v %v, then %v %v", args, values, err, again, errAgain)
		}
	})
}
