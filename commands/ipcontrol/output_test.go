package ipcontrol

import (
	"math/big"
	"testing"
	"time"
)

func TestCountsForPeople(t *testing.T) {
	for exact, want := range map[string]string{
		"0": "0", "254": "254", "16777214": "16777214", "4294967294": "4294967294",
		"18446744073709551614":                    "2^64-2",
		"18446744073709551616":                    "2^64",
		"18446744073709551620":                    "2^64+4",
		"9223372036854775000":                     "2^63-808",
		"12345678901234567890":                    "~1.23e+19",
		"340282366920938463463374607431768211454": "2^128-2",
	} {
		n, _ := new(big.Int).SetString(exact, 10)
		if got := count(n); got != want {
			t.Errorf("%s: %s, want %s", exact, got, want)
		}
	}
}

func TestAges(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		-time.Hour: "0s", 0: "0s", 119 * time.Second: "119s", 5 * time.Minute: "5m", 3*time.Hour + 4*time.Minute: "3h4m",
		50 * time.Hour: "2d2h", 1000 * time.Hour: "41d",
	} {
		since := now.Add(-ago)
		if got := age(now, &since); got != want {
			t.Errorf("%v: %s, want %s", ago, got, want)
		}
	}
	if age(now, nil) != "" {
		t.Error("an unknown age is shown")
	}
}

func TestStoredTextDoesNotCommandTheTerminal(t *testing.T) {
	if got := printable("a\x1b[2Jb\nc\u202ed ü"); got != "a?[2Jb?c?d ü" {
		t.Errorf("%q", got)
	}
}
