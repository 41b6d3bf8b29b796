package ipam

import (
	"errors"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
)

func TestValidAttachments(t *testing.T) {
	one := &[]types.GCAttachment{{ContainerID: "c1", IfName: "eth0"}}
	none := &[]types.GCAttachment{}
	tests := []struct {
		name, keys string
		want       *[]types.GCAttachment
	}{
		{"absent is not empty", ``, nil},
		{"null is none left", `, "cni.dev/valid-attachments": null`, none},
		{"an empty list is none left", `, "cni.dev/valid-attachments": []`, none},
		{"a list", `, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`, one},
		{"the older name", `, "cni.dev/attachments": [{"containerID": "c1", "ifname": "eth0"}]`, one},
		{"the older name with null", `, "cni.dev/attachments": null`, none},
		{"the newer name wins", `, "cni.dev/attachments": [], "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]`, one},
		{"the newer name wins when it is null", `, "cni.dev/attachments": [{"containerID": "c1"}], "cni.dev/valid-attachments": null`, none},
		{"other spellings of the entry", `, "cni.dev/valid-attachments": [{"containerId": "c1", "ifName": "eth0", "more": 1}]`, one},
		{"an entry without an interface", `, "cni.dev/valid-attachments": [{"containerID": "c1"}]`, &[]types.GCAttachment{{ContainerID: "c1"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cfg := configHost{env: inPod}.mustParse(t, `{"ipam": {"range": "10.0.0.0/24"}`+test.keys+`}`)
			wantEqual(t, "ValidAttachments", cfg.ValidAttachments, test.want)
		})
	}
}

// A list that is not understood must not look like an empty one.
func TestValidAttachmentsThatAreNoList(t *testing.T) {
	for _, test := range []struct {
		value string
		words []string
	}{
		{`{}`, []string{"cni.dev/valid-attachments: ", "a list of objects", "found an object"}},
		{`""`, []string{"cni.dev/valid-attachments: ", "a list of objects", "found a string"}},
		{`0`, []string{"cni.dev/valid-attachments: ", "a list of objects", "found a number"}},
		{`false`, []string{"cni.dev/valid-attachments: ", "found a boolean"}},
		{`["c1"]`, []string{"cni.dev/valid-attachments[0]: ", "an object", `"c1"`}},
		{`[{"containerID": "c1"}, null]`, []string{"cni.dev/valid-attachments[1]: ", "an object", "null"}},
		{`[{"containerID": 5}]`, []string{"cni.dev/valid-attachments[0].containerID: ", "a string", "5"}},
		{`[{"containerID": "c1", "ifname": 5}]`, []string{"cni.dev/valid-attachments[0].ifname: ", "a string", "5"}},
		{`[{"containerID": ""}]`, []string{"cni.dev/valid-attachments[0].containerID: ", "missing"}},
		{`[{}]`, []string{"cni.dev/valid-attachments[0].containerID: ", "missing"}},
	} {
		t.Run(test.value, func(t *testing.T) {
			cfg, err := configHost{env: inPod}.parse(`{"ipam": {"range": "10.0.0.0/24"}, "cni.dev/valid-attachments": ` + test.value + `}`)
			if cfg != nil || !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v, %v; want an error that wraps ErrInvalid", cfg, err)
			}
			wantWords(t, err.Error(), test.words...)
		})
	}
}
