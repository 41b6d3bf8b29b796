package testenv

import (
	"net/http"
	"strings"
)

// RightsUsed is what requests need, in the words of a role: "resource verb", with the
// subresource as "resource/subresource verb".
func RightsUsed(requests []Request) map[string]bool {
	verbs := map[string]string{http.MethodPost: "create", http.MethodPatch: "patch", http.MethodDelete: "delete", http.MethodPut: "update"}
	used := map[string]bool{}
	for _, r := range requests {
		resource, named := resourceOf(r.Path)
		verb := verbs[r.Method]
		switch {
		case verb != "":
		case r.Query.Get("watch") != "":
			verb = "watch"
		case named:
			verb = "get"
		default:
			verb = "list"
		}
		used[resource+" "+verb] = true
	}
	return used
}

// resourceOf finds the resource in a path of the API, with its subresource, and
// whether it is one object's.
func resourceOf(path string) (resource string, named bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[min(len(parts), map[string]int{"api": 2, "apis": 3}[parts[0]]):]
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch len(parts) {
	case 0:
		return path, false
	case 1, 2:
		return parts[0], len(parts) == 2
	}
	return parts[0] + "/" + parts[2], true
}
