package mixed

import (
	"fmt"
	"os"
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// suite has the control plane of the tests in which no reconcile runs, which would look at
// the records of all.
var suite = testenv.Suite{Repository: "../..", Shared: testenv.Shared{CRDs: "../../manifests/crds"}}

// oldBinary is the test itself, which is the older plugin too.
var oldBinary string

func TestMain(m *testing.M) {
	if os.Getenv(oldVariable) != "" {
		os.Exit(oldMain())
	}
	var err error
	if oldBinary, err = os.Executable(); err != nil {
		fmt.Fprintln(os.Stderr, "mixed:", err)
		os.Exit(1)
	}
	suite.Main(m)
}
