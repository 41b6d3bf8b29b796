package node

import (
	"os"
	"testing"
)

func TestTryWorksAloneAndNeverWaits(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	worked := 0
	did, err := q.Try(func() {
		worked++
		if inner, err := q.Try(func() { worked++ }); inner || err != nil {
			t.Errorf("a second one at the same time: %v, %v", inner, err)
		}
	})
	if !did || err != nil || worked != 1 {
		t.Errorf("got %v, %v, worked %d times", did, err, worked)
	}
	unlock := lockQueue(t, q)
	if did, err := q.Try(func() { worked++ }); did || err != nil || worked != 1 {
		t.Errorf("while a call is at work: %v, %v, worked %d times", did, err, worked)
	}
	unlock()
	if did, err := q.Try(func() { worked++ }); !did || err != nil || worked != 2 {
		t.Errorf("afterwards: %v, %v, worked %d times", did, err, worked)
	}
}

func TestCallsWaitUntilATryIsOver(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	var ended <-chan outcome
	if did, err := q.Try(func() {
		ended = wait(t.Context(), q, []byte("x"), hang, workingAlone("own"))
		listed(t, q, ended)
	}); !did || err != nil {
		t.Fatal(did, err)
	}
	if got := <-ended; got.err != nil || string(got.answer) != "own" {
		t.Errorf("got %s, %v", got.answer, got.err)
	}
}

func TestTryWithoutAQueue(t *testing.T) {
	t.Parallel()
	q := openTestQueue(t)
	if err := os.RemoveAll(q.directory); err != nil {
		t.Fatal(err)
	}
	if did, err := q.Try(func() { t.Error("worked without a lock") }); did || err == nil {
		t.Errorf("got %v, %v", did, err)
	}
}
