package render

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

var shared testenv.Shared

func TestMain(m *testing.M) { shared.Main(m) }

// renderings are all that is offered, by name.
func renderings(t *testing.T) map[string]Objects {
	t.Helper()
	all := map[string]Objects{"base": mustKustomization(t, baseDir), "chart": mustChart(t, nil).Objects}
	for _, name := range overlays(t) {
		all["overlay "+name] = mustKustomization(t, filepath.Join(overlaysDir, name))
		all["chart for "+name] = mustChart(t, readValues(t, filepath.Join(chartDir, "values", name+".yaml"))).Objects
	}
	return all
}

// plurals are the names of the kinds in paths of the API.
var plurals = map[string]string{
	"ClusterRole":              "clusterroles",
	"ClusterRoleBinding":       "clusterrolebindings",
	"ConfigMap":                "configmaps",
	"CustomResourceDefinition": "customresourcedefinitions",
	"DaemonSet":                "daemonsets",
	"Deployment":               "deployments",
	"NetworkPolicy":            "networkpolicies",
	"RoleBinding":              "rolebindings",
	"ServiceAccount":           "serviceaccounts",
}

func path(t *testing.T, object testenv.Object) string {
	t.Helper()
	plural := plurals[object.String("kind")]
	if plural == "" {
		t.Fatalf("kind %q is new: add it to plurals", object.String("kind"))
	}
	at := "/apis/" + object.String("apiVersion")
	if !strings.Contains(object.String("apiVersion"), "/") {
		at = "/api/" + object.String("apiVersion")
	}
	if in := object.String("metadata", "namespace"); in != "" {
		at += "/namespaces/" + in
	}
	return fmt.Sprintf("%s/%s/%s", at, plural, object.Name())
}

const strictDryRun = "?dryRun=All&fieldValidation=Strict&fieldManager=test&force=true"

// What kubectl apply --server-side --dry-run=server says to each object, with no
// field unknown.
func TestTheAPIServerTakesEachRendering(t *testing.T) {
	cp := shared.ControlPlane(t)
	for name, objects := range renderings(t) {
		t.Run(name, func(t *testing.T) {
			for _, key := range slices.Sorted(maps.Keys(objects)) {
				object := objects[key]
				err := cp.Client().Patch(t.Context(), path(t, object)+strictDryRun, testenv.ApplyPatch, object, nil)
				if err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
}

// What the test above relies on: an unknown field and a wrong value are refused.
func TestTheAPIServerRefusesWhatIsWrong(t *testing.T) {
	cp := shared.ControlPlane(t)
	for field, value := range map[string]any{"replica": 2, "minReadySeconds": -1} {
		deployment := mustKustomization(t, baseDir)["Deployment kube-system/whereabouts-reconciler"]
		deployment.Field("spec").(map[string]any)[field] = value
		err := cp.Client().Patch(t.Context(), path(t, deployment)+strictDryRun, testenv.ApplyPatch, deployment, nil)
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s=%v: %v", field, value, err)
		}
	}
}

// The pods in a cluster that enforces Kubernetes' pod security standards. Those of the
// Deployments keep the strictest; the DaemonSet's have to be allowed everything, for
// no other reasons than those here.
func TestPodSecurity(t *testing.T) {
	cp := shared.ControlPlane(t)
	namespaces := map[string]string{}
	for _, level := range []string{"privileged", "baseline", "restricted"} {
		namespaces[level] = labelled(t, cp, level)
	}
	for name, objects := range renderings(t) {
		for key, object := range objects {
			kind := object.String("kind")
			if kind != "DaemonSet" && kind != "Deployment" {
				continue
			}
			t.Run(name+" "+key, func(t *testing.T) {
				for level, namespace := range namespaces {
					err := createPod(t, cp, namespace, object)
					if kind == "Deployment" || level == "privileged" {
						if err != nil {
							t.Errorf("%s: %v", level, err)
						}
						continue
					}
					checkRefused(t, level, strings.Contains(name, "openshift"), err)
				}
			})
		}
	}
}

// labelled makes a namespace that enforces a level.
func labelled(t *testing.T, cp *testenv.ControlPlane, level string) string {
	t.Helper()
	name := "level-" + level
	cp.Must(t).Create("/api/v1/namespaces", testenv.Object{"metadata": testenv.Object{
		"name": name, "labels": testenv.Object{"pod-security.kubernetes.io/enforce": level},
	}})
	return name
}

// createPod tries to create a pod of a workload's template, without doing so.
func createPod(t *testing.T, cp *testenv.ControlPlane, namespace string, workload testenv.Object) error {
	t.Helper()
	template := workload.Field("spec", "template").(map[string]any)
	pod := testenv.Object{
		"metadata": testenv.Object{"name": "x", "labels": testenv.Object(template).Field("metadata", "labels")},
		"spec":     template["spec"],
	}
	return cp.Client().Create(t.Context(), "/api/v1/namespaces/"+namespace+"/pods?dryRun=All&fieldValidation=Strict", pod, nil)
}

// particulars are in brackets behind each reason of a refusal.
var particulars = regexp.MustCompile(` \([^()]*\)`)

// checkRefused fails unless a pod was refused for the reasons that the DaemonSet
// cannot do without: it works before any pod network does, and writes to directories
// of the node that are root's.
func checkRefused(t *testing.T, level string, onOpenShift bool, err error) {
	t.Helper()
	_, reasons, found := strings.Cut(fmt.Sprint(err), `violates PodSecurity "`+level+`:latest": `)
	if !found {
		t.Errorf("%s: the pod is not refused: %v", level, err)
		return
	}
	want := map[string][]string{
		"baseline":   {"host namespaces", "hostPath volumes", "probe or lifecycle host"},
		"restricted": {"host namespaces", "probe or lifecycle host", "restricted volume types", "runAsNonRoot != true", "runAsUser=0"},
	}[level]
	if onOpenShift {
		want = append(want, "seLinuxOptions")
	}
	slices.Sort(want)
	got := strings.Split(particulars.ReplaceAllString(reasons, ""), ", ")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: refused for %q, want %q", level, got, want)
	}
}
