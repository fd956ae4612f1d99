// Package web serves three pages to people: the overview (of everything, or of one repository), a pipeline,
// and a workflow's log that follows while it is written.
//
// It owns no durable state. What it shows comes from the store's reads and from the logs, the same that the
// calls of package xrpc answer from; nothing here changes anything. In memory it keeps only a bounded cache
// of handles and the open streams, and Close waits for both.
//
// Every page is whole without JavaScript. With it, one event stream (/_sse) per page sends the sections
// that changed, rendered by the templates of the page itself, and the new lines of a log. The cursor of a
// log is a line number, so a stream that was cut goes on where it was. Streams pull: a slow reader delays
// nobody. Every page has a .json twin under the same path.
//
// Everything shown is hostile: it passes html/template, the page's policy forbids any script or style that
// is not a file of this package, and of terminal escapes only colours and weights survive, as classes.
package web
