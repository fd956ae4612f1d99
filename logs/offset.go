package logs

import "context"

// Offset is the byte at which a line begins, counted from 0: what Read and Follow take to go on there. A line
// beyond the end gives the end.
func (l *Logs) Offset(ctx context.Context, ref Ref, line int64) (int64, error) {
	x, err := l.indexOf(ctx, ref)
	if err != nil {
		return 0, err
	}
	at, offset := x.seek(line)
	for at < line {
		got, next, _, err := l.Read(ctx, ref, offset, int(min(line-at, indexEvery)))
		if err != nil {
			return 0, err
		}
		if len(got) == 0 {
			break
		}
		at, offset = at+int64(len(got)), next
	}
	return offset, nil
}
