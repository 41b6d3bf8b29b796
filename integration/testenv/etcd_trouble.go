package testenv

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// Trouble is something that happens to one member of an etcd cluster while the others
// go on. When it is over all members serve again.
type Trouble struct {
	Name   string
	Happen func(ctx context.Context, rng *rand.Rand) error
}

// Troubles are the deaths of members and of the leader, and moves of the leader; and
// cuts of the network where members live apart (see StartEtcdApart). A member is away
// for up to three seconds.
func (e *Etcd) Troubles() []Trouble {
	any := func(rng *rand.Rand) (*Member, error) { return e.Members[rng.IntN(len(e.Members))], nil }
	leader := func(*rand.Rand) (*Member, error) { return e.Leader() }
	all := []Trouble{
		away("member killed", any, killed, (*Member).Start),
		away("leader killed", leader, killed, (*Member).Start),
		{"leader moved", func(_ context.Context, rng *rand.Rand) error {
			m, err := any(rng)
			if err != nil {
				return err
			}
			return e.MoveLeader(m)
		}},
	}
	if e.Members[0].link != nil {
		all = append(all,
			away("member cut off", any, (*Member).Cut, (*Member).Heal),
			away("leader cut off", leader, (*Member).Cut, (*Member).Heal),
		)
	}
	return all
}

func killed(m *Member) error {
	m.Kill()
	return nil
}

// away lets a member be away for a while.
func away(name string, which func(*rand.Rand) (*Member, error), end, begin func(*Member) error) Trouble {
	return Trouble{name, func(ctx context.Context, rng *rand.Rand) error {
		m, err := which(rng)
		if err != nil {
			return err
		}
		if err := end(m); err != nil {
			return err
		}
		const longest = 3 * time.Second
		sleep(ctx, time.Duration(rng.Int64N(int64(longest))))
		if err := begin(m); err != nil {
			return err
		}
		return m.WaitHealthy()
	}}
}

// Unrest lets all troubles happen, one after the other in an order that changes, again
// and again until rest is called. That waits until all members serve and until each
// trouble has happened at least once, and writes into the test's log how often.
func (e *Etcd) Unrest(tb testing.TB) (rest func()) {
	tb.Helper()
	u := &unrest{tb: tb, troubles: e.Troubles(), happened: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		u.run(ctx)
	}()
	var once sync.Once
	rest = func() {
		once.Do(func() {
			stop()
			<-done
			u.log()
		})
	}
	tb.Cleanup(rest)
	return rest
}

type unrest struct {
	tb       testing.TB
	troubles []Trouble
	happened map[string]int
}

func (u *unrest) run(ctx context.Context) {
	rng := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for ctx.Err() == nil || len(u.happened) < len(u.troubles) {
		for _, i := range rng.Perm(len(u.troubles)) {
			t := u.troubles[i]
			if ctx.Err() != nil && u.happened[t.Name] > 0 {
				continue
			}
			if err := t.Happen(ctx, rng); err != nil {
				u.tb.Errorf("%s: %v", t.Name, err)
				return
			}
			u.happened[t.Name]++
			const respite = time.Second // a time without trouble belongs to it, too
			sleep(ctx, time.Duration(rng.Int64N(int64(respite))))
		}
	}
}

func (u *unrest) log() {
	for _, name := range slices.Sorted(maps.Keys(u.happened)) {
		u.tb.Logf("%s: %d times", name, u.happened[name])
	}
}
