package installer

import (
	"bytes"
	"fmt"
	"strings"
	"time"
)

// The first line of a kubeconfig says which installer wrote it, by the time of its
// start. Two may run on a node for a while, each with a token of its own pod: when a
// set of pods replaces another one. The one that started last has its way, or they
// would overwrite each other's for ever.
const (
	stampBegin = "# Written by whereabouts install, started "
	stampEnd   = "; changes do not last.\n"
)

func stamped(content []byte, started time.Time) []byte {
	line := fmt.Sprint(stampBegin, started.UTC().Format(time.RFC3339Nano), stampEnd)
	return append([]byte(line), content...)
}

// splitStamp answers the content without the line, and the time in it, which is zero
// if there is none.
func splitStamp(text []byte) (content []byte, started time.Time) {
	line, rest, found := bytes.Cut(text, []byte("\n"))
	word, ours := strings.CutPrefix(string(line), stampBegin)
	word, whole := strings.CutSuffix(word+"\n", stampEnd)
	if !found || !ours || !whole {
		return text, time.Time{}
	}
	started, err := time.Parse(time.RFC3339Nano, word)
	if err != nil {
		return text, time.Time{}
	}
	return rest, started
}
