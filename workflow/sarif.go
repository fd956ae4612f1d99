package workflow

import (
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// The parts of SARIF 2.1.0 (OASIS, https://docs.oasis-open.org/sarif/sarif/v2.1.0/) that are written.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string      `json:"id"`
		Short   sarifText   `json:"shortDescription"`
		Full    sarifText   `json:"fullDescription"`
		Help    sarifText   `json:"help"`
		Default sarifConfig `json:"defaultConfiguration"`
	}
	sarifConfig struct {
		Level Severity `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     Severity        `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations,omitempty"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI  string `json:"uri"`
		Base string `json:"uriBaseId,omitempty"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn,omitempty"`
	}
)

// SARIF is ds as a SARIF 2.1.0 log, which code hosts and editors read. version is the program's own. The rules
// are all codes with their explanations.
func SARIF(ds []Diagnostic, version string) ([]byte, error) {
	run := sarifRun{ColumnKind: "unicodeCodePoints", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "spindle", Version: version}
	index := map[string]int{}
	for i, e := range Explanations() {
		index[e.Code] = i
		level := Error
		if strings.HasPrefix(e.Code, "W-") {
			level = Warning
		}
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: e.Code, Short: sarifText{e.Meaning}, Full: sarifText{e.Why},
			Help:    sarifText{"Wrong:\n\n" + e.Wrong.String() + "\nRight:\n\n" + e.Right.String()},
			Default: sarifConfig{level},
		})
	}
	for _, d := range ds {
		at, known := index[d.Code]
		if !known {
			at = -1 // what SARIF writes for no rule
		}
		res := sarifResult{RuleID: d.Code, RuleIndex: at, Level: d.Severity, Message: sarifText{d.Message}}
		if d.Fix != "" {
			res.Message.Text += "\nfix: " + d.Fix
		}
		if d.File != "" {
			l := sarifLocation{sarifPhysical{Artifact: artifact(d.File)}}
			if d.Line > 0 {
				l.Physical.Region = &sarifRegion{d.Line, max(d.Column, 0)}
			}
			res.Locations = []sarifLocation{l}
		}
		run.Results = append(run.Results, res)
	}
	out, err := json.MarshalIndent(sarifLog{
		Schema:  "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
		Version: "2.1.0", Runs: []sarifRun{run},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write SARIF: %w", err)
	}
	return out, nil
}

// artifact names file as a URI, relative to the top of the sources unless it is absolute.
func artifact(file string) sarifArtifact {
	if path.IsAbs(file) {
		return sarifArtifact{URI: (&url.URL{Scheme: "file", Path: file}).String()}
	}
	return sarifArtifact{URI: (&url.URL{Path: file}).EscapedPath(), Base: "%SRCROOT%"}
}
