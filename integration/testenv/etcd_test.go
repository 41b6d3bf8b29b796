package testenv

import (
	"strings"
	"testing"
)

func TestEtcdClusterOutlivesAMember(t *testing.T) {
	t.Parallel()
	etcd := StartEtcd(t, 3)
	leader, err := etcd.Leader()
	if err != nil {
		t.Fatal(err)
	}
	next := etcd.Members[0]
	if next == leader {
		next = etcd.Members[1]
	}
	if err := etcd.MoveLeader(next); err != nil {
		t.Fatal(err)
	}
	if leader, err = etcd.Leader(); err != nil || leader != next {
		t.Fatalf("want %s to lead, got %v, %v", next.Name, leader, err)
	}
	put(t, next, "a2V5", "djE=") // key, v1
	leader.Kill()
	var other *Member
	for _, m := range etcd.Members {
		if m != leader {
			other = m
		}
	}
	if err := other.WaitHealthy(); err != nil {
		t.Fatal(err)
	}
	put(t, other, "a2V5", "djI=") // key, v2
	if err := leader.Start(); err != nil {
		t.Fatal(err)
	}
	if err := leader.WaitHealthy(); err != nil {
		t.Fatal(err)
	}
	var got struct{ Kvs []struct{ Value string } }
	if err := leader.call("/v3/kv/range", Object{"key": "a2V5"}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) != 1 || got.Kvs[0].Value != "djI=" {
		t.Errorf("the member that was away does not know the last write: %+v", got)
	}
	if n := strings.Count(etcd.Endpoints(), ","); n != 2 {
		t.Errorf("want three endpoints, got %s", etcd.Endpoints())
	}
}

func put(t *testing.T, m *Member, key, value string) {
	t.Helper()
	if err := m.call("/v3/kv/put", Object{"key": key, "value": value}, nil); err != nil {
		t.Fatal(err)
	}
}
