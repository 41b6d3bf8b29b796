package testenv

import (
	"net/http"
	"net/url"
	"testing"
)

func TestRightsUsed(t *testing.T) {
	const own = "/apis/whereabouts.cni.cncf.io/v1alpha1/"
	for _, tt := range []struct {
		method, path, query, want string
	}{
		{http.MethodGet, own + "namespaces/kube-system/ippools", "", "ippools list"},
		{http.MethodGet, own + "ippools", "watch=1", "ippools watch"},
		{http.MethodGet, own + "namespaces/kube-system/ippools/10.0.0.0-8", "", "ippools get"},
		{http.MethodPatch, own + "namespaces/kube-system/ippools/10.0.0.0-8/status", "", "ippools/status patch"},
		{http.MethodPost, "/api/v1/namespaces/default/events", "", "events create"},
		{http.MethodDelete, "/api/v1/namespaces/default/pods/a", "", "pods delete"},
		{http.MethodPut, "/api/v1/nodes/a", "", "nodes update"},
		{http.MethodGet, "/api/v1/nodes/a", "", "nodes get"},
	} {
		query, err := url.ParseQuery(tt.query)
		if err != nil {
			t.Fatal(err)
		}
		used := RightsUsed([]Request{{Method: tt.method, Path: tt.path, Query: query}})
		if len(used) != 1 || !used[tt.want] {
			t.Errorf("%s %s: %v, want %q", tt.method, tt.path, used, tt.want)
		}
	}
}
