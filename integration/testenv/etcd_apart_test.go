package testenv

import "testing"

// A member whose network is cut does not answer, and the others do without it: it is
// cut off from them, too. Healed, it knows what was written meanwhile.
func TestEtcdClusterOutlivesAMemberThatIsCutOff(t *testing.T) {
	t.Parallel()
	etcd := StartEtcdApart(t, 3)
	cut, err := etcd.Leader()
	if err != nil {
		t.Fatal(err)
	}
	self, _, err := cut.ID()
	if err != nil {
		t.Fatal(err)
	}
	other := etcd.Members[0]
	if other == cut {
		other = etcd.Members[1]
	}
	if err := cut.Cut(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := cut.ID(); err == nil {
		t.Error("a member whose network is cut answers")
	}
	if err := other.WaitHealthy(); err != nil {
		t.Fatal(err)
	}
	put(t, other, "a2V5", "djI=") // key, v2
	if _, lead, err := other.ID(); err != nil || lead == self {
		t.Errorf("the leader is %s, %v: the member that was cut off still leads the others", lead, err)
	}
	if err := cut.Heal(); err != nil {
		t.Fatal(err)
	}
	if err := cut.WaitHealthy(); err != nil {
		t.Fatal(err)
	}
	var got struct{ Kvs []struct{ Value string } }
	if err := cut.call("/v3/kv/range", Object{"key": "a2V5"}, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Kvs) != 1 || got.Kvs[0].Value != "djI=" {
		t.Errorf("the member that was cut off does not know the last write: %+v", got)
	}
}
