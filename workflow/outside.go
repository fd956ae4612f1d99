package workflow

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What is checked of the keys that have to do with what is outside of the steps.
var (
	// hostLabel is the name of a service, under which the steps reach it.
	hostLabel = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$`)
	// hostPattern is an entry of network.
	hostPattern = regexp.MustCompile(`^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)+(:[0-9]{1,5})?$`)
)

// services reads containers that run beside the steps.
func (d *decoder) services(p pair) []Service {
	if p.value.kind != mapping {
		d.err(p.value.at, codeType, "write services: {postgres: {image: docker.io/library/postgres:17}}", `"services" must be a mapping of names, this is %s`, p.value)
		return nil
	}
	if len(p.value.pairs) > servicesLimit {
		d.err(p.at, codeLimit, "use fewer services", "there are %d services, more than the %d allowed", len(p.value.pairs), servicesLimit)
		return nil
	}
	out := make([]Service, 0, len(p.value.pairs))
	for _, q := range p.value.pairs {
		if !hostLabel.MatchString(q.key) {
			d.err(q.at, codeValue, "use lower-case letters, digits and - only, starting with a letter, at most 32", "%s cannot name a service: steps reach it under that host name", quoted(q.key))
		}
		out = append(out, d.service(q))
	}
	return out
}

func (d *decoder) service(p pair) Service {
	s := Service{Name: p.key}
	d.object(p.value, "service "+quoted(p.key), serviceKeys(), func(q pair) {
		switch q.key {
		case "image":
			s.Image = d.word(q.key, q.at, q.value, imageLimit)
			if s.Image != "" && (!imageReference.MatchString(s.Image) || s.Image == HostImage) {
				d.err(q.value.at, codeValue, "write a name such as docker.io/library/postgres:17", "%s is not the name of an image", quoted(s.Image))
			}
		case "environment":
			s.Environment = d.environment(q.key, q.at, q.value)
		case "ports":
			d.texts(q.key, q.at, q.value, portsLimit, func(n *node, text string) {
				port, err := strconv.Atoi(text)
				if err != nil || port < 1 || port > 65535 {
					d.err(n.at, codeValue, "write a number from 1 to 65535", "a port is a number from 1 to 65535, this is %s", quoted(text))
					return
				}
				s.Ports = append(s.Ports, port)
			})
		case "ready":
			s.Ready = d.word(q.key, q.at, q.value, textLimit)
		}
	})
	return s
}

func (d *decoder) network(p pair) Network {
	d.use(FeatureNetwork, p.at)
	v := p.value
	if v.kind == scalar {
		var mode string
		if hostPattern.MatchString(v.text) {
			d.err(v.at, codeType, "network: ["+clean(v.text, 60)+"]", "hosts are a list, this is %s", v)
			return Network{}
		}
		d.choice(p, []string{NetworkNone, NetworkInternet}, "the network is a list of hosts or", &mode)
		return Network{Mode: mode}
	}
	n := Network{Mode: NetworkHosts}
	d.texts(p.key, p.at, v, d.lim.List, func(item *node, s string) {
		_, port, _ := strings.Cut(s, ":")
		if number, _ := strconv.Atoi(port); !hostPattern.MatchString(s) || port != "" && (number < 1 || number > 65535) {
			d.err(item.at, codeValue, "write a name such as example.org, *.example.org or example.org:443", "%s is not a host", quoted(s))
			return
		}
		n.Hosts = append(n.Hosts, strings.ToLower(s))
	})
	if v.kind == sequence && len(v.items) == 0 {
		d.err(v.at, codeRequired, "network: none, or add a host", `"network" is empty`)
	}
	return n
}

func artifactWhens() []string { return []string{OnSuccess, OnFailure, Always} }

func (d *decoder) artifacts(p pair) []Artifact {
	d.use(FeatureArtifacts, p.at)
	var out []Artifact
	lines := map[string]int{}
	for i, n := range d.sequence(p.key, p.at, p.value, artifactsLimit) {
		a := Artifact{When: OnSuccess}
		d.object(n, fmt.Sprintf("artifact %d", i+1), artifactKeys(), func(q pair) {
			switch q.key {
			case "name":
				a.Name = d.word(q.key, q.at, q.value, nameLimit)
				if a.Name != "" && !fileName.MatchString(a.Name) {
					d.err(q.value.at, codeValue, "use letters, digits and . _ - only, at most 64", "%s cannot name an artifact", quoted(a.Name))
				}
			case "paths":
				a.Paths = d.files(q)
			case "when":
				d.choice(q, artifactWhens(), "an artifact is kept", &a.When)
			case "retention":
				d.span(q, retentionMost, &a.Retention)
			}
		})
		if was, twice := lines[a.Name]; twice && a.Name != "" {
			d.err(n.at, codeTwice, "give it another name", "the artifact %s is already on line %d", quoted(a.Name), was)
		}
		lines[a.Name] = n.at.line
		out = append(out, a)
	}
	return out
}

func reportTypes() []string {
	return []string{ReportJUnit, ReportCoverage, ReportSARIF, ReportMarkdown}
}

func coverageFormats() []string { return []string{FormatLcov, FormatCobertura, FormatGo} }

func (d *decoder) reports(p pair) []Report {
	d.use(FeatureReports, p.at)
	var out []Report
	for i, n := range d.sequence(p.key, p.at, p.value, reportsLimit) {
		var r Report
		var format pair
		d.object(n, fmt.Sprintf("report %d", i+1), reportKeys(), func(q pair) {
			switch q.key {
			case "type":
				if s := q.value; s.kind == scalar && slices.Contains(coverageFormats(), s.text) {
					d.err(s.at, codeValue, "type: coverage, format: "+s.text, "%s is a format of coverage, not a type", s)
					return
				}
				d.choice(q, reportTypes(), "the type of a report is", &r.Type)
			case "format":
				format = q
				d.choice(q, coverageFormats(), "the format of coverage is", &r.Format)
			case "paths":
				r.Paths = d.files(q)
			}
		})
		if format.value != nil && r.Type != ReportCoverage && r.Type != "" {
			d.err(format.at, codeValue, "remove it", "only coverage has a format, this is %s", quoted(r.Type))
		}
		out = append(out, r)
	}
	return out
}

// files reads patterns of files below the folder of the clone.
func (d *decoder) files(p pair) []string {
	out := d.globs(p.key, p.at, p.value)
	if p.value.kind == sequence && len(p.value.items) == 0 {
		d.err(p.value.at, codeRequired, "add a path", "%s is empty", quoted(p.key))
	}
	for _, s := range out {
		bare := strings.TrimPrefix(s, "!")
		if slices.Contains(strings.Split(bare, "/"), "..") || strings.HasPrefix(bare, "~") {
			d.err(p.value.at, codeValue, "write a path inside the repository", "the path %s is not inside the repository", quoted(s))
		}
	}
	return out
}

// days is a time span in days, which time.ParseDuration does not know.
var days = regexp.MustCompile(`^([0-9]{1,4})d$`)

// span reads a time span such as 90s, 24h or 30d, up to most.
func (d *decoder) span(p pair, most time.Duration, into *time.Duration) {
	s, ok := d.text(p.key, p.at, p.value)
	if !ok {
		return
	}
	t, err := time.ParseDuration(s)
	if m := days.FindStringSubmatch(s); m != nil {
		n, _ := strconv.Atoi(m[1]) // at most four digits
		t, err = time.Duration(n)*24*time.Hour, nil
	}
	switch v := p.value; {
	case bareNumber.MatchString(s):
		d.err(v.at, codeValue, "write "+clean(s, 20)+"d for days or "+clean(s, 20)+"h for hours", "%s has no unit, this is %s", quoted(p.key), v)
	case err != nil:
		d.err(v.at, codeValue, "write a time such as 90m, 24h or 30d", "%s is not a time span, this is %s", quoted(p.key), v)
	case t < time.Second || t > most:
		d.err(v.at, codeValue, "write a time from 1s to "+inDays(most), "%s must be between 1s and %s, this is %s", quoted(p.key), inDays(most), v)
	default:
		*into = t
	}
}

func inDays(t time.Duration) string { return strconv.Itoa(int(t/(24*time.Hour))) + "d" }
