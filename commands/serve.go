package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
)

// Limits of the server: its clients are a scraper and the kubelet, and nobody else
// may tie it up.
const (
	serveTimeout      = 10 * time.Second
	serveIdleTimeout  = 2 * time.Minute // longer than the usual pause between scrapes
	serveHeaderBytes  = 8 << 10
	metricsFormat     = "text/plain; version=0.0.4; charset=utf-8"
	defaultListen     = ":8080"
	serveDrainTimeout = 200 * time.Millisecond
)

// observed is what a role shows of itself.
type observed struct {
	metrics *metrics
	// alive answers what is stuck, so that only a restart helps; nil is fine.
	alive func() error
	// ready answers why this process is of no use now; nil is fine.
	ready func() error
}

// handler serves /metrics, /healthz and /readyz. A probe that fails is answered
// 503 with the reason.
func (o observed) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", metricsFormat)
		_ = o.metrics.write(w) // the client has gone
	})
	mux.HandleFunc("GET /healthz", probeHandler(o.alive))
	mux.HandleFunc("GET /readyz", probeHandler(o.ready))
	return mux
}

func probeHandler(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, err.Error()+"\n")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	}
}

// listenFlag is --listen of every role that runs on.
func listenFlag(address string) *cli.StringFlag {
	return &cli.StringFlag{
		Name: "listen", Value: address,
		Usage: "`address` of /metrics, /healthz and /readyz; empty switches them off",
	}
}

// serve starts the server and returns what ends it. An empty address starts none.
// An address that cannot be used is an error for the operator.
func (o observed) serve(address string, log *slog.Logger) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, listenError(address, err)
	}
	server := &http.Server{
		Handler: o.handler(), ReadTimeout: serveTimeout, WriteTimeout: serveTimeout, IdleTimeout: serveIdleTimeout,
		MaxHeaderBytes: serveHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics and health", "address", listener.Addr())
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics and health are not served any more", "address", address, "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), serveDrainTimeout)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}, nil
}

func listenError(address string, err error) error {
	remedy := "write it like :8080 or 127.0.0.1:8080"
	if errors.Is(err, syscall.EADDRINUSE) {
		remedy = "another process has this port: choose another one"
	} else if errors.Is(err, syscall.EACCES) {
		remedy = "choose a port above 1023"
	}
	return fmt.Errorf(`--listen: cannot listen on %q: %w; %s, or "" to serve nothing`, address, err, remedy)
}
