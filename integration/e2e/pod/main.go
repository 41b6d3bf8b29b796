// Command pod is what the pods of the test cluster run. By itself it greets whoever
// connects to port 7000, with its host name, until it is told to end. `pod call
// ADDRESS...` calls pods at addresses, prints their greetings, and fails when one does
// not answer. `pod addresses` prints its interfaces and their addresses, with masks.
// Called `sleep` or `true` it does as those do.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const port = "7000"

func main() {
	if err := run(filepath.Base(os.Args[0]), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch {
	case name == "true":
		return nil
	case name == "sleep":
		untilTold()
		return nil
	case len(args) > 0 && args[0] == "call":
		return call(args[1:])
	case len(args) > 0 && args[0] == "addresses":
		return addresses()
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	go greet(listener)
	untilTold()
	return nil
}

// greet answers until the process ends.
func greet(listener net.Listener) {
	name, _ := os.Hostname() // "" greets, too
	for {
		connection, err := listener.Accept()
		if err != nil {
			continue
		}
		_, _ = io.WriteString(connection, name+"\n")
		_ = connection.Close()
	}
}

func call(addresses []string) error {
	for _, address := range addresses {
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(address, port), 20*time.Second)
		if err != nil {
			return err
		}
		if _, err := io.Copy(os.Stdout, connection); err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		_ = connection.Close()
	}
	return nil
}

func addresses() error {
	all, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, one := range all {
		own, err := one.Addrs()
		if err != nil {
			return err
		}
		for _, address := range own {
			fmt.Println(one.Name, address)
		}
	}
	return nil
}

// untilTold waits for a signal to end. As a pod's first process it has to bury the
// others' children.
func untilTold() {
	signal.Ignore(syscall.SIGCHLD)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
}
