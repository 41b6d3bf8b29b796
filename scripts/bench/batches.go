package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// batchLine is what the plugin says in its log after it carried out a batch.
var batchLine = regexp.MustCompile(`(?m)^.*msg="carried out calls".* calls=([0-9]+)`)

// batches are the sizes of the batches that a log tells of.
func batches(log []byte) []int {
	var sizes []int
	for _, match := range batchLine.FindAllSubmatch(log, -1) {
		size, err := strconv.Atoi(string(match[1]))
		if err == nil {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// batchesIn reads a log file of the plugin.
func batchesIn(path string) ([]int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the plugin's log: %w", err)
	}
	return batches(data), nil
}

func sum(numbers []int) int {
	all := 0
	for _, n := range numbers {
		all += n
	}
	return all
}
