package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// documentBreak is the line between two YAML documents of a file.
var documentBreak = regexp.MustCompile(`(?m)^---.*$`)

// ApplyCRDs creates or replaces the CustomResourceDefinitions in a directory's
// YAML files, and returns when the API server serves each of them at full speed.
// An API server holds one set at a time: to test another set, start another
// control plane rather than replacing it, since nothing tells when a replaced
// schema is in force.
func (cp *ControlPlane) ApplyCRDs(tb testing.TB, dir string) {
	tb.Helper()
	if err := cp.InstallCRDs(tb.Context(), dir); err != nil {
		tb.Fatal(err)
	}
}

// ApplyOldCRDs is ApplyCRDs with definitions that have the required fields only,
// as clusters have them that were installed with an old version.
func (cp *ControlPlane) ApplyOldCRDs(tb testing.TB) {
	tb.Helper()
	source, err := sourceDir()
	if err != nil {
		tb.Fatal(err)
	}
	cp.ApplyCRDs(tb, filepath.Join(source, "..", "testenv", "testdata", "old-crds"))
}

// InstallCRDs is ApplyCRDs without a test.
func (cp *ControlPlane) InstallCRDs(ctx context.Context, dir string) error {
	crds, err := readCRDs(dir)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := cp.putCRD(ctx, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		served := func() error { return cp.checkServed(ctx, crd) }
		if err := poll(startTimeout, func() bool { return ctx.Err() == nil }, served); err != nil {
			return fmt.Errorf("custom resource definition %s is not served: %w", crd.Name(), err)
		}
	}
	return nil
}

func readCRDs(dir string) ([]Object, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.y*ml"))
	if err != nil {
		return nil, err
	}
	var crds []Object
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, document := range documentBreak.Split(string(data), -1) {
			var crd Object
			if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if crd.String("kind") == "CustomResourceDefinition" {
				crds = append(crds, crd)
			}
		}
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("no custom resource definitions in the YAML files of %s", dir)
	}
	return crds, nil
}

// putCRD tries again when somebody else wrote the definition at the same time, as
// the API server does itself to tell its state.
func (cp *ControlPlane) putCRD(ctx context.Context, crd Object) error {
	for {
		err := cp.tryPutCRD(ctx, crd)
		if StatusCode(err) != http.StatusConflict {
			return err
		}
	}
}

func (cp *ControlPlane) tryPutCRD(ctx context.Context, crd Object) error {
	var old Object
	path := crdPath + "/" + crd.Name()
	err := cp.client.Get(ctx, path, &old)
	if StatusCode(err) == http.StatusNotFound {
		return cp.client.Create(ctx, crdPath, crd, nil)
	}
	if err != nil {
		return err
	}
	metadata, _ := crd["metadata"].(map[string]any)
	metadata["resourceVersion"] = old.String("metadata", "resourceVersion")
	return cp.client.Update(ctx, path, crd, nil)
}

// checkServed answers nil when a definition is established and each of its
// versions can be listed.
func (cp *ControlPlane) checkServed(ctx context.Context, crd Object) error {
	var now Object
	if err := cp.client.Get(ctx, crdPath+"/"+crd.Name(), &now); err != nil {
		return err
	}
	if err := checkEstablished(now); err != nil {
		return err
	}
	versions, _ := crd.Field("spec", "versions").([]any)
	for _, v := range versions {
		version := Object(v.(map[string]any))
		if served, _ := version["served"].(bool); !served {
			continue
		}
		path := fmt.Sprintf("/apis/%s/%s/%s", crd.String("spec", "group"), version.String("name"), crd.String("spec", "names", "plural"))
		if _, err := cp.client.List(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

// youth is how long after a definition is established the API server lets each
// create wait two seconds (for the sake of other API servers, which may not know
// it yet). No test should meet that.
const youth = 2 * time.Second

func checkEstablished(crd Object) error {
	conditions, _ := crd.Field("status", "conditions").([]any)
	for _, c := range conditions {
		condition := Object(c.(map[string]any))
		if condition.String("type") != "Established" || condition.String("status") != "True" {
			continue
		}
		since, err := time.Parse(time.RFC3339, condition.String("lastTransitionTime"))
		if err != nil {
			return fmt.Errorf("its condition Established: %w", err)
		}
		if time.Since(since) < youth {
			return fmt.Errorf("established less than %s ago", youth)
		}
		return nil
	}
	return errors.New("not established yet")
}
