package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// roleVariable makes the test binary one process of a node instead of a test.
const roleVariable = "WHEREABOUTS_TEST_CALLER"

func TestMain(m *testing.M) {
	if text := os.Getenv(roleVariable); text != "" {
		var c caller
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		c.main()
		return
	}
	os.Exit(m.Run())
}

// caller is a process that has one request carried out. It says on stdout what it
// does, one event in JSON on each line.
type caller struct {
	RunDirectory string
	Body         string
	Patience     time.Duration
	AnswerSize   int // bytes to blow each answer up to

	// PauseAt is where the process stands still until a line comes on stdin:
	// pauseListed and so on. Of all processes with the same Token, a file, only
	// the first one does.
	PauseAt, Token string

	said *json.Encoder
}

const (
	pauseListed    = "after the requests are listed"
	pauseRemoved   = "after the first request is removed and before it is answered"
	pauseDelivered = "after the first answer"
	pauseAnswered  = "after all answers"
)

// event is a step that a process has taken.
type event struct {
	Step      string // "worked", "delivered", "paused", "ended"
	By        string
	Bodies    []string `json:",omitempty"` // worked: all that it carried out, its own included
	To        string   `json:",omitempty"` // delivered: whose request it was
	Delivered bool     `json:",omitempty"`
	Answer    string   `json:",omitempty"` // ended
	GaveUp    bool     `json:",omitempty"`
	Failed    string   `json:",omitempty"`
}

func (c *caller) main() {
	c.said = json.NewEncoder(os.Stdout)
	q, err := OpenQueue(c.RunDirectory, "test")
	var answer []byte
	if err == nil {
		answer, err = q.Do(context.Background(), []byte(c.Body), upTo(c.Patience), func(waiting []Request, deliver Deliver) []byte {
			return c.work(q, waiting, deliver)
		})
	}
	e := event{Step: "ended", Answer: string(answer), GaveUp: errors.Is(err, ErrWaited)}
	if err != nil && !e.GaveUp {
		e.Failed = err.Error()
	}
	c.say(e)
}

func (c *caller) say(e event) {
	e.By = c.Body
	if err := c.said.Encode(e); err != nil {
		panic(err)
	}
}

func (c *caller) work(q *Queue, waiting []Request, deliver Deliver) []byte {
	bodies := []string{c.Body}
	for _, r := range waiting {
		bodies = append(bodies, string(r.Body))
	}
	c.say(event{Step: "worked", Bodies: bodies})
	c.pause(pauseListed)
	for i, r := range waiting {
		if i == 0 && c.pausesAt(pauseRemoved) {
			_ = os.Remove(q.path(r.name, "request"))
			c.stand(pauseRemoved)
		}
		c.say(event{Step: "delivered", To: string(r.Body), Delivered: deliver(r, c.answerTo(string(r.Body)))})
		if i == 0 {
			c.pause(pauseDelivered)
		}
	}
	c.pause(pauseAnswered)
	return c.answerTo(c.Body)
}

func (c *caller) answerTo(body string) []byte {
	answer := "answer to " + body
	return []byte(answer + strings.Repeat(".", max(0, c.AnswerSize-len(answer))))
}

func (c *caller) pause(at string) {
	if c.pausesAt(at) {
		c.stand(at)
	}
}

func (c *caller) pausesAt(at string) bool { return c.PauseAt == at && os.Remove(c.Token) == nil }

func (c *caller) stand(at string) {
	c.say(event{Step: "paused", Failed: at})
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// upTo is patience that does not depend on progress.
func upTo(d time.Duration) Patience { return Patience{Still: d, Limit: d} }
