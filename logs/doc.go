// Package logs owns the output of steps: one append-only file of JSON lines for each attempt.
//
// A line is either data (what a step printed, or the spindle said) or control (a step began or ended). What a
// step prints is data whatever it looks like. Bytes are masked as a stream before they become lines, so a
// secret split over two writes is still hidden, and nothing unmasked ever reaches the disk. A writer flushes
// within 20 ms or 32 KiB, wakes its readers after the bytes are in the file, and syncs at the end of every step
// and at the end of the log: a status that says how a step ended never precedes its output.
//
// Data is kept byte for byte but for four things: secrets; bytes that are not UTF-8, which become U+FFFD; a
// last line without an end, which gets one; and a line that is redrawn with carriage returns and longer than
// 4 KiB, of which the last state is kept and one every 5 s. A line above 64 KiB becomes several.
//
// Readers pull from a byte offset in the file; the offset after a line is the cursor to resume from, and one
// at which no line begins is refused. There is no queue for a reader, so a slow one costs the writer nothing.
// A torn last line, left by a kill, is not served. A log that no writer of this process holds is ended. The
// index beside a log, which finds pages and steps, is made again when it is missing.
//
// Past the byte limit of an attempt its output is dropped and counted, and a visible line says so; control
// lines and what the spindle itself says are written still, within bounds of their own.
package logs
