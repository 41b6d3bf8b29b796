package ipam

import (
	"encoding/json"
	"fmt"
	"strings"
)

// invalidKey is an error about one key: what is wrong with it and, behind a
// semicolon, what to do.
func invalidKey(label, format string, args ...any) error {
	return fmt.Errorf("%w: %s: "+format, append([]any{ErrInvalid, label}, args...)...)
}

// invalidArg is the error about a value in CNI_ARGS, or of a key that asks for the
// same: which of them, what was found and what would be right.
func invalidArg(source, format string, args ...any) error {
	if strings.HasPrefix(source, "CNI_ARGS ") {
		return fmt.Errorf("%w: %s: "+format, append([]any{ErrArgs, source}, args...)...)
	}
	return invalidKey(source, format, args...)
}

// wrongType is the error about a value, or an element of it, that is not what
// the key takes.
func (v configValue) wrongType(label string, found json.RawMessage) error {
	return invalidKey(label+inFlatFile(v.from), "expected %s, found %s", v.key.typ, v.show(found))
}

// show describes a value found: its type, and the value itself unless it is a
// secret or so large that a secret may be in it.
func (v configValue) show(found json.RawMessage) string {
	k := jsonKindOf(found)
	switch k {
	case jsonBool, jsonNumber, jsonString:
		if !v.key.secret {
			return fmt.Sprintf("%s: %s", k, shortenValue(strings.TrimSpace(string(found))))
		}
	case jsonNull, jsonList, jsonObject:
	}
	return string(k)
}

// inFlatFile names the flat file behind a key, and nothing for the network
// configuration.
func inFlatFile(from string) string {
	if from == "" {
		return ""
	}
	return " (in " + from + ")"
}

// shortenValue keeps messages readable whatever somebody put into a value.
func shortenValue(s string) string {
	const most = 80
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}
