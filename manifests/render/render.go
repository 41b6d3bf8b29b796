// Package render renders the manifests in both ways that they are offered, by
// kustomize and by Helm, so that tests can compare them and show them to an API
// server. It is a module of its own, so that the plugin's does not carry the
// libraries of the two.
package render

import (
	"fmt"
	"regexp"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Objects are Kubernetes objects by "kind namespace/name", or "kind /name" for those
// of the whole cluster.
type Objects map[string]testenv.Object

// Kustomization renders a directory with a kustomization.
func Kustomization(dir string) (Objects, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("kustomization in %s: %w", dir, err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("kustomization in %s: %w", dir, err)
	}
	objects := Objects{}
	return objects, objects.read(dir, string(text))
}

// Rendering is what Helm makes of a chart.
type Rendering struct {
	Objects Objects
	Notes   string // what is told after the installation
}

// Chart renders the chart in a directory as an installation into a namespace would.
// The values are added to the chart's own.
func Chart(dir, namespace string, values map[string]any) (Rendering, error) {
	r := Rendering{Objects: Objects{}}
	chart, err := loader.Load(dir)
	if err != nil {
		return r, fmt.Errorf("chart in %s: %w", dir, err)
	}
	release := chartutil.ReleaseOptions{Name: "whereabouts", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return r, fmt.Errorf("values of the chart in %s: %w", dir, err)
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return r, fmt.Errorf("chart in %s: %w", dir, err)
	}
	for name, text := range files {
		if strings.HasSuffix(name, "/NOTES.txt") {
			r.Notes = text
			continue
		}
		if err := r.Objects.read(name, text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// documentBreak is the line between two YAML documents of a file.
var documentBreak = regexp.MustCompile(`(?m)^---.*$`)

// read adds the objects in a YAML file's text. Empty documents are none.
func (o Objects) read(file, text string) error {
	for _, document := range documentBreak.Split(text, -1) {
		var object testenv.Object
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return fmt.Errorf("%s: %w in:\n%s", file, err, document)
		}
		if len(object) == 0 {
			continue
		}
		key := fmt.Sprintf("%s %s/%s", object.String("kind"), object.String("metadata", "namespace"), object.Name())
		if o[key] != nil {
			return fmt.Errorf("%s: %s is there twice", file, key)
		}
		o[key] = object
	}
	return nil
}
