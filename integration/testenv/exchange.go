package testenv

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"
)

// connectionKey finds a request's connection in its context.
type connectionKey struct{}

// exchange is one request on its way through a proxy.
type exchange struct {
	proxy  *Proxy
	in     *http.Request
	body   []byte
	out    http.ResponseWriter
	record *Request
	action Action
}

// answer is a complete answer.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// run takes the request through the steps of its action.
func (e *exchange) run() {
	a := e.action
	if a.before != nil {
		a.before(e.snapshot())
	}
	ctx := e.in.Context()
	if a.detached {
		ctx = context.WithoutCancel(ctx)
	}
	if !sleep(ctx, a.wait) {
		e.abort()
	}
	if a.forward {
		e.forward(ctx)
		return
	}
	e.finish(nil)
}

// forward asks the API server. A watch goes through as it comes; other answers
// are read whole, so that the record is complete when the client has its answer.
func (e *exchange) forward(ctx context.Context) {
	response, err := e.proxy.ask(ctx, e.in, e.body)
	if err != nil {
		e.proxy.update(e.record, func(r *Request) { r.Err = err })
		e.abort()
	}
	defer response.Body.Close()
	answered := e.proxy.update(e.record, func(r *Request) { r.Upstream = response.StatusCode })
	if e.action.after != nil {
		e.action.after(answered)
	}
	dropHopByHop(response.Header)
	if e.action.finish != pass && e.action.finish != cut {
		e.finish(nil)
		return
	}
	if isStream(e.in) {
		e.stream(response)
		return
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		e.proxy.update(e.record, func(r *Request) { r.Err = err })
		e.abort()
	}
	e.finish(&answer{code: response.StatusCode, header: response.Header, body: body})
}

// isStream reports whether the answer has no foreseeable end.
func isStream(r *http.Request) bool {
	query := r.URL.Query()
	on := func(key string) bool {
		value, err := strconv.ParseBool(query.Get(key))
		return err == nil && value
	}
	return on("watch") || on("follow")
}

// finish ends the request with the API server's answer or as the action says.
func (e *exchange) finish(a *answer) {
	if !sleep(e.in.Context(), e.action.hold) {
		e.abort()
	}
	switch e.action.finish {
	case pass:
		e.write(a)
	case replace:
		e.write(e.action.status.answer(e.in.Method))
	case cut:
		e.cut(a)
	case hang:
		<-e.in.Context().Done()
		e.abort()
	case drop:
		e.abort()
	}
}

// write sends a complete answer.
func (e *exchange) write(a *answer) {
	e.complete(a.code, len(a.body))
	maps.Copy(e.out.Header(), a.header)
	if e.in.Method != http.MethodHead {
		e.out.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	e.out.WriteHeader(a.code)
	_, _ = e.out.Write(a.body) // a client that left is no concern of ours
	if e.action.wholly {
		e.flush()
		e.abort()
	}
}

// cut sends the head of an answer and half of its body.
func (e *exchange) cut(a *answer) {
	half := a.body[:len(a.body)/2]
	e.complete(a.code, len(half))
	maps.Copy(e.out.Header(), a.header)
	e.out.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	e.out.WriteHeader(a.code)
	_, _ = e.out.Write(half)
	e.flush()
	e.abort()
}

// stream passes an answer on piece by piece as it comes.
func (e *exchange) stream(response *http.Response) {
	e.proxy.update(e.record, func(r *Request) { r.Status = response.StatusCode })
	maps.Copy(e.out.Header(), response.Header)
	e.out.WriteHeader(response.StatusCode)
	e.flush()
	if e.action.finish == cut {
		e.abort()
	}
	buffer := make([]byte, 64<<10)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			e.proxy.update(e.record, func(r *Request) { r.ResponseSize += int64(n) })
			if _, err := e.out.Write(buffer[:n]); err != nil {
				e.abort()
			}
			e.flush()
		}
		if errors.Is(err, io.EOF) {
			e.proxy.update(e.record, done)
			return
		}
		if err != nil {
			e.proxy.update(e.record, func(r *Request) { r.Err = err })
			e.abort()
		}
	}
}

func (e *exchange) flush() { _ = http.NewResponseController(e.out).Flush() }

func (e *exchange) complete(code, size int) {
	e.proxy.update(e.record, func(r *Request) {
		r.Status, r.ResponseSize = code, int64(size)
		done(r)
	})
}

func done(r *Request) {
	r.Done, r.Duration = true, time.Since(r.Begin)
}

func (e *exchange) snapshot() Request {
	return e.proxy.update(e.record, func(*Request) {})
}

// abort ends the handler and, with HTTP/1.1, its connection. With HTTP/2 only
// the stream is reset, so a whole connection is ended from below.
func (e *exchange) abort() {
	e.proxy.update(e.record, func(r *Request) {
		if !r.Done {
			done(r)
		}
	})
	if e.action.wholly {
		reset(e.in.Context().Value(connectionKey{}))
	}
	panic(http.ErrAbortHandler)
}

// reset closes a connection the hard way: the other side sees a reset, not an
// end.
func reset(connection any) {
	if wrapped, ok := connection.(interface{ NetConn() net.Conn }); ok {
		connection = wrapped.NetConn()
	}
	if tcp, ok := connection.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// sleep waits and reports whether the context allowed it to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
