package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// machine is where the figures are from.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Load   string `json:"load"` // averages of 1, 5 and 15 minutes, at the start
}

func thisMachine() machine {
	return machine{
		CPU: cpuModel(read("/proc/cpuinfo")), Cores: runtime.NumCPU(), Kernel: read("/proc/sys/kernel/osrelease"),
		Go: runtime.Version(), Load: strings.Join(firstFields(read("/proc/loadavg"), 3), " "),
	}
}

// read is the content of a file of the kernel, or "unknown".
func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

func cpuModel(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown " + runtime.GOARCH
}

func firstFields(text string, n int) []string {
	fields := strings.Fields(text)
	return fields[:min(n, len(fields))]
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d cores, Linux %s, %s; load at the start %s", m.CPU, m.Cores, m.Kernel, m.Go, m.Load)
}

// busy reports whether others use a good part of the machine.
func (m machine) busy() bool {
	first, _, _ := strings.Cut(m.Load, " ")
	load, err := strconv.ParseFloat(first, 64)
	return err == nil && load > float64(m.Cores)/2
}
