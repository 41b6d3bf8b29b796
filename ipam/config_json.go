package ipam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckJSON answers nil if data is one JSON value, else an error that wraps
// ErrDecode and names what was read (what: "network configuration", or the path
// of a file) and the line and column, counted from 1, where it stops being JSON.
// It repeats nothing of the input, which may hold a password or be another
// program's file.
func CheckJSON(data []byte, what string) error {
	var raw json.RawMessage
	err := json.Unmarshal(data, &raw)
	if err == nil {
		return nil
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return fmt.Errorf("%w: %s: correct it and check it with any JSON validator", ErrDecode, what)
	}
	line, column := jsonPosition(data, int(syntax.Offset))
	return fmt.Errorf("%w: %s: line %d, column %d: %s; correct it there or just before",
		ErrDecode, what, line, column, describeSyntax(syntax))
}

// jsonPosition turns an offset as in json.SyntaxError, the number of bytes read up
// to and with the offending one, into a line and a column in characters.
func jsonPosition(data []byte, offset int) (line, column int) {
	before := data[:max(0, min(offset-1, len(data)))]
	line = 1 + bytes.Count(before, []byte("\n"))
	column = 1 + utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:])
	return line, column
}

// describeSyntax gives the decoder's reason without the character it quotes.
func describeSyntax(err *json.SyntaxError) string {
	reason := err.Error()
	quoted, found := strings.CutPrefix(reason, "invalid character '")
	if !found {
		if strings.HasPrefix(reason, "unexpected end") {
			return "it ends too early, is something cut off or not closed?"
		}
		return "something is wrong here"
	}
	// The quoted character may itself be a quote, so the closing one is looked
	// for behind its first byte.
	_, context, _ := strings.Cut(quoted[min(1, len(quoted)):], "' ")
	if strings.HasSuffix(context, "max depth") {
		return "it is nested too deeply"
	}
	return "unexpected character " + context
}

// jsonMember is one key of a JSON object with its value.
type jsonMember struct {
	name string
	raw  json.RawMessage
}

// jsonMembers lists the keys of a JSON object in their order, duplicates included.
// The text has passed CheckJSON; ok is false if it is not an object.
func jsonMembers(raw json.RawMessage) (list []jsonMember, ok bool) {
	if jsonKindOf(raw) != jsonObject {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	for dec.More() {
		var m jsonMember
		name, err := dec.Token()
		if err == nil {
			err = dec.Decode(&m.raw)
		}
		if err != nil {
			return nil, false
		}
		m.name, _ = name.(string)
		list = append(list, m)
	}
	return list, true
}

// jsonElements lists the values of a JSON list. The text has passed CheckJSON; ok
// is false if it is not a list.
func jsonElements(raw json.RawMessage) (list []json.RawMessage, ok bool) {
	if jsonKindOf(raw) != jsonList {
		return nil, false
	}
	return list, json.Unmarshal(raw, &list) == nil
}

// jsonKind is the type of a JSON value, in words for an error message.
type jsonKind string

const (
	jsonNull   jsonKind = "null"
	jsonBool   jsonKind = "a boolean"
	jsonNumber jsonKind = "a number"
	jsonString jsonKind = "a string"
	jsonList   jsonKind = "a list"
	jsonObject jsonKind = "an object"
)

// jsonKindOf tells the type of a text that is one JSON value.
func jsonKindOf(raw json.RawMessage) jsonKind {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	if len(trimmed) == 0 {
		return jsonNull
	}
	switch trimmed[0] {
	case 'n':
		return jsonNull
	case 't', 'f':
		return jsonBool
	case '"':
		return jsonString
	case '[':
		return jsonList
	case '{':
		return jsonObject
	}
	return jsonNumber
}

// jsonEmpty reports whether a value says nothing: null, "", [] or {}. A written
// false or 0 says something.
func jsonEmpty(raw json.RawMessage) bool {
	text := bytes.TrimSpace(raw)
	switch jsonKindOf(text) {
	case jsonNull:
		return true
	case jsonString:
		return len(text) == 2
	case jsonList, jsonObject:
		return len(bytes.TrimSpace(text[1:len(text)-1])) == 0
	case jsonBool, jsonNumber:
	}
	return false
}
