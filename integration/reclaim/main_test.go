package reclaim

import (
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

// Most tests wait for clean-up.
var suite = testenv.Suite{Repository: "../..", Parallel: 4}

func TestMain(m *testing.M) { suite.Main(m) }
