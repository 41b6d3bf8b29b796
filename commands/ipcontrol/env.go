package ipcontrol

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// Env is what the command uses of its process, so that tests can stand in for it.
type Env struct {
	Getenv   func(string) string
	ReadFile func(string) ([]byte, error)
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Now      func() time.Time

	// Terminal reports whether a stream is a terminal; nil asks the system.
	Terminal func(stream any) bool
	// Sleep waits for a time or the end of the context; nil waits.
	Sleep func(context.Context, time.Duration) error
}

func (e Env) terminal(stream any) bool {
	if e.Terminal != nil {
		return e.Terminal(stream)
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (e Env) sleep(ctx context.Context, d time.Duration) error {
	if e.Sleep != nil {
		return e.Sleep(ctx, d)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// colour reports whether stdout takes colours: https://no-color.org.
func (e Env) colour() bool {
	return e.terminal(e.Stdout) && e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb"
}
