package ipam

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestCheckJSON(t *testing.T) {
	tests := []struct {
		name, data, where string // where "" is valid
	}{
		{"an object", `{"a": [1, null, true, "x"]}`, ""},
		{"blanks around", " \n[]\n ", ""},
		{"empty", "", "line 1, column 1: it ends too early"},
		{"blank", "\n\n  ", "line 3, column 2: it ends too early"},
		{"cut off", "{\n  \"a\": 1,\n  \"b\": [", "line 3, column 8: it ends too early"},
		{"a missing comma", "{\n  \"a\": 1\n  \"b\": 2\n}", "line 3, column 3: unexpected character after object key:value pair"},
		{"a comma too many", "{\"a\": 1,}", "line 1, column 9: unexpected character looking for beginning of object key string"},
		{"a bare word", "{\"a\": zebra}", "line 1, column 7: unexpected character looking for beginning of value"},
		{"a single quote", "{'a': 1}", "line 1, column 2: unexpected character looking for beginning of object key string"},
		{"text behind the end", "{}\nx", "line 2, column 1: unexpected character after top-level value"},
		{"columns are characters", `{"ä": ö}`, "line 1, column 7: unexpected character"},
		{"a raw line break in a string", "{\"a\": \"x\ny\"}", "line 1, column 9: unexpected character in string literal"},
		{"too deep", strings.Repeat("[", 20000), "line 1, column 10001: it is nested too deeply"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := CheckJSON([]byte(test.data), "network configuration")
			if test.where == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrDecode) {
				t.Fatalf("%v does not wrap ErrDecode", err)
			}
			wantWords(t, err.Error(), "network configuration: "+test.where, "correct it")
		})
	}
}

func TestParseConfigAnswersErrDecode(t *testing.T) {
	cfg, err := ParseConfig(Sources{Stdin: []byte("{\n\"ipam\": }")})
	if !errors.Is(err, ErrDecode) || cfg != nil {
		t.Fatalf("%v, %v", cfg, err)
	}
	wantWords(t, err.Error(), "network configuration", "line 2, column 9")
}

func TestJSONEmpty(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "null": true, `""`: true, "[]": true, "{}": true, " [ \n ] ": true, "{\t}": true,
		"0": false, "false": false, `" "`: false, "[null]": false, `{"a": null}`: false, `"[]"`: false,
	} {
		if got := jsonEmpty(json.RawMessage(text)); got != want {
			t.Errorf("jsonEmpty(%q) is %v", text, got)
		}
	}
}

// CheckJSON agrees with the decoder, and its message shows no character that
// was read.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a": 1}`, `{`, `{"a" 1}`, "\xff", `"`, `{"ä": ' '}`, `{"a": "\q"}`, `tru3`, `1.e`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := CheckJSON(data, "F")
		if (err == nil) != json.Valid(data) {
			t.Fatalf("CheckJSON(%q) = %v, json.Valid says %v", data, err, json.Valid(data))
		}
		if err == nil {
			return
		}
		for _, r := range err.Error() {
			if r > '~' { // all our own words are ASCII
				t.Fatalf("CheckJSON(%q) = %q shows a character of the input", data, err)
			}
		}
	})
}
