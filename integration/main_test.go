package integration

import (
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// suite has the control plane of all tests that do not need their own. Most tests wait for
// a pause of the plugin to pass.
var suite = testenv.Suite{Repository: "..", Parallel: 8, Shared: testenv.Shared{CRDs: "../manifests/crds"}}

func TestMain(m *testing.M) { suite.Main(m) }
