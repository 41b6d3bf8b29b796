package history

import (
	"testing"

	"github.com/whereabouts-cni/whereabouts/integration/testenv"
)

var suite = testenv.Suite{Repository: "../.."}

func TestMain(m *testing.M) { suite.Main(m) }
