package commands

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/whereabouts-cni/whereabouts/ipam"
)

// logLevels are the words of log_level. The default is verbose.
var logLevels = map[string]slog.Level{
	"debug":   slog.LevelDebug,
	"verbose": slog.LevelInfo,
	"error":   slog.LevelError,
	"panic":   slog.LevelError + 4,
}

// openLog makes the log of a plugin call. The file gets what log_level asks for;
// stderr, which the runtime puts into its own log, gets warnings and errors of
// that, and everything at level debug. A file that cannot be opened is a warning
// there, never a failed pod.
func openLog(cfg *ipam.Config, stderr io.Writer) (*slog.Logger, func()) {
	level, ok := logLevels[cfg.LogLevel]
	if !ok {
		level = slog.LevelInfo
	}
	stderrLevel := max(level, slog.LevelWarn)
	if level == slog.LevelDebug {
		stderrLevel = level
	}
	toStderr := slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: stderrLevel})
	if cfg.LogFile == "" {
		return slog.New(toStderr), func() {}
	}
	// Not through a symbolic link: the directory may be one that others write to.
	file, err := os.OpenFile(cfg.LogFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		fmt.Fprintf(stderr, "whereabouts: log_file cannot be opened, logging to stderr alone: %v\n", err)
		return slog.New(toStderr), func() {}
	}
	toFile := slog.NewTextHandler(file, &slog.HandlerOptions{Level: level})
	return slog.New(slog.NewMultiHandler(toFile, toStderr)), func() { file.Close() }
}
