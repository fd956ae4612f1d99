package web

import (
	"strings"

	"spindle/logs"
)

// asked is how a page shows a line of output that asks for something: the title of a group, or a note with its place.
// It is made of the classes that colours have. ok is false for every other line.
func asked(c logs.Command) (spans []span, ok bool) {
	switch {
	case c.Name == logs.Group, c.Name == logs.GroupOpen:
		return []span{{Class: "bo", Text: "▾ " + plain(c.Text)}}, true
	case c.Name == logs.EndGroup:
		return []span{{Class: "di", Text: "▴"}}, true
	case c.Note():
		class := map[string]string{logs.ErrorNote: "f1 bo", logs.WarnNote: "f3 bo", logs.NoticeNote: "f4 bo"}[c.Name]
		text := c.Text
		if c.Title != "" {
			text = c.Title + ": " + text
		}
		if at := c.Place(); at != "" {
			text = at + ": " + text
		}
		return []span{{Class: class, Text: c.Name}, {Text: ": " + strings.ReplaceAll(plain(text), "\n", " ")}}, true
	}
	return nil, false
}
