// The grammar of audit/log-format.md, where Go's libraries accept more.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

const deepest = 33

// A whole surrogate pair, half a pair (in the group), or any other escape.
var escapes = regexp.MustCompile(`(?s)\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u([dD][89a-fA-F])|.)`)

// Whether valid JSON is at most `deepest` deep, and has neither repeated names nor half a surrogate pair.
func isStrict(data []byte) bool {
	for _, escape := range escapes.FindAllSubmatchIndex(data, -1) {
		if escape[2] >= 0 {
			return false
		}
	}
	type level struct {
		names  map[string]bool // nil in an array
		isName bool            // the next token is a name
	}
	decoder, open := json.NewDecoder(bytes.NewReader(data)), []level{}
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return err == io.EOF
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			open = open[:len(open)-1]
			continue
		}
		if top := len(open) - 1; top >= 0 && open[top].names != nil {
			if open[top].isName {
				name := token.(string)
				if open[top].names[name] {
					return false
				}
				open[top].names[name], open[top].isName = true, false
				continue
			}
			open[top].isName = true
		}
		if token == json.Delim('{') {
			open = append(open, level{map[string]bool{}, true})
		} else if token == json.Delim('[') {
			open = append(open, level{})
		}
		if len(open) > deepest {
			return false
		}
	}
}

var errNote = errors.New("not a checkpoint of the grammar")

// Checks a note's lines of signatures. Go's note accepts base64 with spare bits set, and a broken signature beside a good one of the same key.
func checkNote(message []byte, known note.Verifiers) error {
	text := string(message)
	end := strings.LastIndex(text, "\n\n")
	if len(message) > 1<<16 || end < 0 || !strings.HasSuffix(text, "\n") {
		return errNote
	}
	lines := strings.Split(text[end+2:], "\n")
	if lines = lines[:len(lines)-1]; len(lines) < 1 || len(lines) > 64 {
		return errNote
	}
	for _, line := range lines {
		parts := strings.Split(line, " ")
		if len(parts) != 3 || strings.Contains(parts[1], "\x7f") {
			return errNote
		}
		data, err := base64.StdEncoding.DecodeString(parts[2])
		if err != nil || base64.StdEncoding.EncodeToString(data) != parts[2] || len(data) < 5 {
			return errNote
		}
		_, err = note.Open([]byte(text[:end+2]+line+"\n"), known)
		if _, isUnknown := err.(*note.UnverifiedNoteError); err != nil && !isUnknown {
			return err
		}
	}
	return nil
}
