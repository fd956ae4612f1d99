package workflow

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // zones must mean the same on every machine, also where none are installed

	"github.com/robfig/cron/v3"
)

// cronField is one of the five columns of a time table. hashMost is the largest value that H takes: days
// stop at 28, so that every month has them.
type cronField struct {
	name        string
	least, most int
	hashMost    int
	note        string
}

func cronFields() [5]cronField {
	return [5]cronField{
		{name: "minute", least: 0, most: 59, hashMost: 59},
		{name: "hour", least: 0, most: 23, hashMost: 23},
		{name: "day of month", least: 1, most: 31, hashMost: 28},
		{name: "month", least: 1, most: 12, hashMost: 12},
		{name: "day of week", least: 0, most: 6, hashMost: 6, note: " (Sunday is 0)"},
	}
}

// cronWords are the descriptors that are taken besides the five columns.
func cronWords() map[string]string {
	return map[string]string{
		"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
		"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
	}
}

// hashToken is H, H/15, H(0-29) or H(0-29)/10.
var hashToken = regexp.MustCompile(`^H(?:\((\d{1,2})-(\d{1,2})\))?(?:/(\d{1,2}))?$`)

// cronChars is what a column other than H may hold; the library is not shown anything else.
var cronChars = regexp.MustCompile(`^[0-9A-Za-z*/,?-]{1,100}$`)

// errCron marks what is wrong with a time table.
var errCron = errors.New("workflow: time table")

// parseCron reads expr, with H spread by seed.
func parseCron(expr, seed string) (cron.Schedule, error) {
	expr = strings.TrimSpace(expr)
	if strings.HasPrefix(expr, "@") {
		full, ok := cronWords()[expr]
		if !ok {
			return nil, fmt.Errorf("%w: %s is none of @hourly, @daily, @weekly, @monthly, @yearly", errCron, quoted(expr))
		}
		expr = full
	}
	columns := strings.Fields(expr)
	fields := cronFields()
	if len(columns) != len(fields) {
		return nil, fmt.Errorf("%w: it must have 5 columns (minute hour day month weekday), this has %d", errCron, len(columns))
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	var full [5]string
	for i, c := range columns {
		f, err := fields[i].spread(c, seed, i)
		if err != nil {
			return nil, err
		}
		full[i] = f
	}
	s, err := parser.Parse(strings.Join(full[:], " "))
	if err == nil {
		return s, nil
	}
	for i, c := range columns { // one by one, to name the one that is wrong
		alone := [5]string{"*", "*", "*", "*", "*"}
		alone[i] = full[i]
		if _, err := parser.Parse(strings.Join(alone[:], " ")); err != nil {
			return nil, fields[i].wrong(c)
		}
	}
	return nil, fmt.Errorf("%w: it cannot be read", errCron)
}

func (f cronField) wrong(column string) error {
	return fmt.Errorf("%w: %s must be %d-%d%s, this is %s", errCron, f.name, f.least, f.most, f.note, quoted(column))
}

// spread replaces the H tokens of column i by numbers that depend on seed alone.
func (f cronField) spread(column, seed string, i int) (string, error) {
	if !strings.Contains(column, "H") || !strings.HasPrefix(column, "H") && !strings.Contains(column, ",H") {
		if !cronChars.MatchString(column) {
			return "", f.wrong(column)
		}
		return column, nil
	}
	parts := strings.Split(column, ",")
	for j, p := range parts {
		m := hashToken.FindStringSubmatch(p)
		if m == nil {
			if strings.HasPrefix(p, "H") || !cronChars.MatchString(p) {
				return "", fmt.Errorf("%w: %s must be H, H/n, H(a-b) or H(a-b)/n, this is %s", errCron, f.name, quoted(p))
			}
			continue
		}
		lo, hi, step := f.least, f.hashMost, 0
		if m[1] != "" {
			lo, hi = digits(m[1]), digits(m[2])
		}
		if m[3] != "" {
			step = digits(m[3])
		}
		if lo < f.least || hi > f.most || lo > hi || m[3] != "" && (step < 1 || step > hi-lo+1) {
			return "", f.wrong(p)
		}
		h := fnv.New64a()
		fmt.Fprintf(h, "%d\x00%s", i, seed)
		if step > 0 {
			start := lo + int(h.Sum64()%uint64(step))
			parts[j] = fmt.Sprintf("%d-%d/%d", start, max(start, hi), step)
		} else {
			parts[j] = strconv.Itoa(lo + int(h.Sum64()%uint64(hi-lo+1)))
		}
	}
	return strings.Join(parts, ","), nil
}

// digits is the number that one or two digits spell.
func digits(s string) int {
	n := 0
	for _, c := range s {
		n = n*10 + int(c-'0')
	}
	return n
}

// Next is the first time after after at which s is due, in s's zone, or the zero time when there is none
// in the next five years. seed spreads the H tokens: the same seed always gives the same times.
func (s Schedule) Next(seed string, after time.Time) time.Time {
	table, err := parseCron(s.Cron, seed)
	if err != nil {
		return time.Time{}
	}
	zone, err := loadZone(s.Timezone)
	if err != nil {
		return time.Time{}
	}
	return table.Next(after.In(zone))
}

// loadZone is the zone with an IANA name. The machine's own zone has no name here: a file must mean the
// same everywhere.
func loadZone(name string) (*time.Location, error) {
	switch name {
	case "":
		return time.UTC, nil
	case "Local":
		return nil, fmt.Errorf("%w: no such zone", errCron)
	}
	known := zones()
	if zone, ok := known.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%w: no such zone: %w", errCron, err)
	}
	if path.Clean(name) == name { // on a disk Europe//Paris is there as well
		known.Store(name, zone)
	}
	return zone, nil
}

// zones are those that were asked for, by name. A zone is read from a file, which takes longer than the rest of a
// condition; there are some 600, so that what is kept is bounded.
var zones = sync.OnceValue(func() *sync.Map { return new(sync.Map) })

// schedules reads the list of time tables of one condition.
func (d *decoder) schedules(key string, at pos, v *node) []Schedule {
	var out []Schedule
	for i, n := range d.sequence(key, at, v, tablesLimit) {
		where := fmt.Sprintf("schedule %d", i+1)
		s := Schedule{Timezone: "UTC"}
		d.object(n, where, scheduleKeys(), func(p pair) {
			switch p.key {
			case "cron":
				s.Cron = d.cron(p.key, p.at, p.value)
			case "timezone":
				d.zone(p.key, p.at, p.value, &s.Timezone)
			}
		})
		out = append(out, s)
	}
	return out
}

func (d *decoder) cron(key string, at pos, v *node) string {
	s := d.word(key, at, v, cronLimit)
	if s == "" {
		return ""
	}
	table, err := parseCron(s, "")
	switch {
	case err != nil:
		d.err(v.at, codeCron, `write minute hour day month weekday, such as "0 1 * * *"`,
			"the time table %s cannot be read: %s", quoted(s), strings.TrimPrefix(err.Error(), errCron.Error()+": "))
	case table.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero():
		d.err(v.at, codeCron, "write a day that the month has", "the time table %s is never due", quoted(s))
	}
	return s
}

func (d *decoder) zone(key string, at pos, v *node, into *string) {
	s := d.word(key, at, v, nameLimit)
	if s == "" {
		return
	}
	if _, err := loadZone(s); err != nil {
		d.err(v.at, codeZone, "write a name such as UTC or Europe/Paris", "there is no time zone %s", quoted(s))
		return
	}
	*into = s
}
