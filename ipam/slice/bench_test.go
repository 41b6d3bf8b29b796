package slice

import (
	"fmt"
	"testing"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// BenchmarkAssign plans for a cluster where nothing has changed.
func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{100, 4000} {
		b.Run(fmt.Sprint(n, " nodes"), func(b *testing.B) {
			r, _, err := ipam.ParseRange(ipam.RangeSpec{Range: "10.0.0.0/8"})
			if err != nil {
				b.Fatal(err)
			}
			c, err := New(24, r)
			if err != nil {
				b.Fatal(err)
			}
			in := Input{Cut: c}
			for i := range n {
				in.Nodes = append(in.Nodes, Node{Name: fmt.Sprint("node-", i)})
			}
			in.Listed = Assign(in).Allocations
			for _, key := range keys(owned(in.Listed)) {
				in.Pools = append(in.Pools, Pool{key, Unknown})
			}
			b.ReportAllocs()
			for b.Loop() {
				if plan := Assign(in); plan.Look != nil || plan.Close != nil {
					b.Fatal("there is something to do")
				}
			}
		})
	}
}
