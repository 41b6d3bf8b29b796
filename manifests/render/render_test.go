package render

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

const (
	chartDir    = "../chart"
	baseDir     = "../base"
	overlaysDir = "../overlays"
	namespace   = "kube-system"
)

type values = map[string]any

func mustKustomization(t *testing.T, dir string) Objects {
	t.Helper()
	objects, err := Kustomization(dir)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func mustChart(t *testing.T, v values) Rendering {
	t.Helper()
	rendering, err := Chart(chartDir, namespace, v)
	if err != nil {
		t.Fatal(err)
	}
	return rendering
}

// readValues reads a file of values; "" has none.
func readValues(t *testing.T, file string) values {
	t.Helper()
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v values
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return v
}

// overlays are the names of all overlays, by what is on disk: one that is added is
// tested, too.
func overlays(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(overlaysDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	for _, wanted := range []string{"openshift", "k3s", "rke2", "microk8s"} {
		if !slices.Contains(names, wanted) {
			t.Errorf("no overlay %s", wanted)
		}
	}
	return names
}

// stayBehind takes from each definition of the chart what keeps it when the release
// is uninstalled. It is the only difference to the kustomization.
func stayBehind(t *testing.T, objects Objects) {
	t.Helper()
	for key, object := range objects {
		if object.String("kind") != "CustomResourceDefinition" {
			continue
		}
		annotations, _ := object.Field("metadata", "annotations").(map[string]any)
		if annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s goes with the release, and all records with it", key)
		}
		delete(annotations, "helm.sh/resource-policy")
		if len(annotations) == 0 {
			delete(object.Field("metadata").(map[string]any), "annotations")
		}
	}
}

func TestChartIsTheSameAsTheKustomization(t *testing.T) {
	cases := map[string]string{baseDir: ""}
	for _, name := range overlays(t) {
		cases[filepath.Join(overlaysDir, name)] = filepath.Join(chartDir, "values", name+".yaml")
	}
	for dir, file := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want := mustKustomization(t, dir)
			got := mustChart(t, readValues(t, file)).Objects
			stayBehind(t, got)
			if len(want) == 0 {
				t.Fatal("the kustomization has no objects")
			}
			for _, d := range differences("", asMap(got), asMap(want)) {
				t.Error(d)
			}
		})
	}
}

func asMap(objects Objects) map[string]any {
	all := map[string]any{}
	for key, object := range objects {
		all[key] = map[string]any(object)
	}
	return all
}

// differences says where two trees of JSON are not the same.
func differences(path string, got, want any) []string {
	gotMap, ok1 := got.(map[string]any)
	wantMap, ok2 := want.(map[string]any)
	if !ok1 || !ok2 {
		if reflect.DeepEqual(got, want) {
			return nil
		}
		return []string{fmt.Sprintf("%s: the chart has %v, the kustomization %v", path, got, want)}
	}
	keys := slices.AppendSeq(slices.Collect(maps.Keys(gotMap)), maps.Keys(wantMap))
	slices.Sort(keys)
	var all []string
	for _, key := range slices.Compact(keys) {
		all = append(all, differences(path+"."+key, gotMap[key], wantMap[key])...)
	}
	return all
}

// Every value of the chart changes what it says, and that alone.
func TestValuesOfTheChart(t *testing.T) {
	const plugin, reconciler, controller = "DaemonSet kube-system/whereabouts", "Deployment kube-system/whereabouts-reconciler", "Deployment kube-system/whereabouts-controller"
	all := []string{plugin, reconciler, controller}
	cases := map[string]struct {
		values values
		on     []string // the objects that change
		finds  string   // in each of them, as YAML
	}{
		"repository":          {values{"image": values{"repository": "r.example/w"}}, all, "image: r.example/w:latest"},
		"tag":                 {values{"image": values{"tag": "v1"}}, all, "image: ghcr.io/whereabouts-cni/whereabouts:v1"},
		"digest":              {values{"image": values{"digest": "sha256:12"}}, all, "image: ghcr.io/whereabouts-cni/whereabouts@sha256:12"},
		"pull policy":         {values{"image": values{"pullPolicy": "Never"}}, all, "imagePullPolicy: Never"},
		"pull secrets":        {values{"image": values{"pullSecrets": []any{values{"name": "s"}}}}, all, "imagePullSecrets:\n      - name: s"},
		"log level":           {values{"logLevel": "debug"}, all, "args:\n        - --log-level=debug"},
		"plugins":             {values{"directories": values{"cniBin": "/b"}}, all[:1], "path: /b"},
		"configurations":      {values{"directories": values{"cniConfig": "/c"}}, all[:1], "path: /c"},
		"kubeconfig":          {values{"directories": values{"kubeconfig": "/k"}}, all[:1], "value: /k"},
		"plugin resources":    {values{"plugin": values{"resources": values{"limits": values{"memory": "1Gi"}}}}, all[:1], "memory: 1Gi"},
		"plugin selector":     {values{"plugin": values{"nodeSelector": values{"a": "b"}}}, all[:1], "a: b"},
		"plugin tolerations":  {values{"plugin": values{"tolerations": []any{values{"key": "k"}}}}, all[:1], "- key: k"},
		"replicas":            {values{"reconciler": values{"replicas": 3}}, all[1:2], "replicas: 3"},
		"schedule":            {values{"reconciler": values{"schedule": "1 2 * * *"}}, []string{"ConfigMap kube-system/whereabouts-config"}, "cron-expression: 1 2 * * *"},
		"reconciler memory":   {values{"reconciler": values{"resources": values{"limits": values{"memory": "1Gi"}}}}, all[1:2], "memory: 1Gi"},
		"reconciler selector": {values{"reconciler": values{"nodeSelector": values{"a": "b"}}}, all[1:2], "a: b"},
		"reconciler taints":   {values{"reconciler": values{"tolerations": []any{values{"key": "k"}}}}, all[1:2], "- key: k"},
		"controllers":         {values{"controller": values{"replicas": 1}}, all[2:], "replicas: 1"},
		"controller memory":   {values{"controller": values{"resources": values{"limits": values{"memory": "1Gi"}}}}, all[2:], "memory: 1Gi"},
		"controller selector": {values{"controller": values{"nodeSelector": values{"a": "b"}}}, all[2:], "a: b"},
		"controller taints":   {values{"controller": values{"tolerations": []any{values{"key": "k"}}}}, all[2:], "- key: k"},
	}
	before := mustChart(t, nil).Objects
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			after := mustChart(t, tc.values).Objects
			for key, object := range after {
				changed := !reflect.DeepEqual(object, before[key])
				if wanted := slices.Contains(tc.on, key); changed != wanted {
					t.Errorf("%s changed: %v, want %v", key, changed, wanted)
				}
			}
			for _, key := range tc.on {
				if text := asYAML(t, after[key]); !strings.Contains(text, tc.finds) {
					t.Errorf("%s has no %q:\n%s", key, tc.finds, text)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d objects instead of %d", len(after), len(before))
			}
		})
	}
}

func asYAML(t *testing.T, object testenv.Object) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What may be off is off as a whole, with its rights, and takes nothing else along.
func TestPartsThatMayBeOff(t *testing.T) {
	cases := map[string]struct {
		off  values
		gone func(key string) bool
	}{
		"controller":  {values{"controller": values{"enabled": false}}, func(key string) bool { return strings.HasSuffix(key, "/whereabouts-controller") }},
		"definitions": {values{"crds": values{"install": false}}, func(key string) bool { return strings.HasPrefix(key, "CustomResourceDefinition ") }},
	}
	before := mustChart(t, nil).Objects
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(before)
			maps.DeleteFunc(want, func(key string, _ testenv.Object) bool { return tc.gone(key) })
			for _, d := range differences("", asMap(mustChart(t, tc.off).Objects), asMap(want)) {
				t.Error(d)
			}
			if len(want) == len(before) {
				t.Error("nothing should be gone")
			}
		})
	}
}

// A release may lie in any namespace: nothing of it lies in another, and the rights go
// to its own service accounts.
func TestNamespaceOfTheRelease(t *testing.T) {
	r, err := Chart(chartDir, "elsewhere", readValues(t, filepath.Join(chartDir, "values", "openshift.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	for key, object := range r.Objects {
		if text := asYAML(t, object); strings.Contains(text, "namespace: kube-system") {
			t.Errorf("%s names kube-system:\n%s", key, text)
		}
	}
	if !strings.Contains(r.Notes, "-n elsewhere") || !strings.Contains(r.Notes, "kube-system are not read") {
		t.Errorf("notes: %s", r.Notes)
	}
}
