package workflow

import (
	"fmt"
	"slices"
	"strings"

	"spindle/pipeline"
)

func inputTypes() []string {
	return []string{InputString, InputBoolean, InputChoice, InputNumber}
}

// inputs reads what the file declares for manual runs.
func (d *decoder) inputs(p pair) []Declared {
	d.use(FeatureInputs, p.at)
	if p.value.kind != mapping {
		d.err(p.value.at, codeType, "write inputs: {level: {type: string}}", `"inputs" must be a mapping of names, this is %s`, p.value)
		return nil
	}
	if len(p.value.pairs) > inputsLimit {
		d.err(p.at, codeLimit, "use fewer inputs", "there are %d inputs, more than the %d allowed", len(p.value.pairs), inputsLimit)
		return nil
	}
	out := make([]Declared, 0, len(p.value.pairs))
	seen := map[string]string{}
	for _, q := range p.value.pairs {
		d.wordKey(q, "an input")
		if other, twice := seen[InputVariable(q.key)]; twice {
			d.err(q.at, codeTwice, "rename one of them", "%s and %s would both be %s", quoted(other), quoted(q.key), InputVariable(q.key))
		}
		seen[InputVariable(q.key)] = q.key
		out = append(out, d.input(q))
	}
	return out
}

func (d *decoder) input(p pair) Declared {
	in := Declared{Key: p.key, Type: InputString}
	var options, preset pair
	var required pos
	there := d.object(p.value, "input "+quoted(p.key), inputKeys(), func(q pair) {
		switch q.key {
		case "type":
			d.choice(q, inputTypes(), "the type of an input is", &in.Type)
		case "description":
			in.About = d.word(q.key, q.at, q.value, aboutLimit)
		case "options":
			options = q
			d.texts(q.key, q.at, q.value, optionsLimit, func(n *node, s string) {
				if slices.Contains(in.Options, s) {
					d.err(n.at, codeTwice, "remove one of them", "the option %s is already in the list", quoted(s))
					return
				}
				in.Options = append(in.Options, s)
			})
		case "default":
			preset = q
			if s, ok := d.text(q.key, q.at, q.value); ok {
				in.Default = &s
			}
		case "required":
			required = q.at
			d.bool(q.key, q.at, q.value, &in.Required)
		}
	})
	switch {
	case in.Type == InputChoice && !there.has("options"):
		d.err(p.at, codeRequired, "add options: [low, high]", "the choice %s has no options", quoted(p.key))
	case in.Type == InputChoice && options.value != nil && options.value.kind == sequence && len(options.value.items) == 0:
		d.err(options.value.at, codeRequired, "add an option", "the choice %s has no options", quoted(p.key))
	case in.Type != InputChoice && options.value != nil:
		d.err(options.at, codeValue, "write type: choice, or remove options", "only a choice has options, %s is a %s", quoted(p.key), in.Type)
	case in.Default != nil:
		if why := in.refuses(*in.Default); why != "" {
			d.err(preset.value.at, codeValue, "write a default that the type takes", "the default of %s %s", quoted(p.key), why)
		}
		if in.Required {
			d.warn(required, warnUnused, "remove it, or remove the default", "%s has a default, so it need not be sent", quoted(p.key))
		}
	}
	return in
}

// refuses says what is wrong with the value s for in, or "".
func (in Declared) refuses(s string) string {
	switch in.Type {
	case InputBoolean:
		if s != "true" && s != "false" {
			return "must be true or false, this is " + quoted(s)
		}
	case InputChoice:
		if !slices.Contains(in.Options, s) {
			return "must be one of " + clean(list(in.Options), 200) + ", this is " + quoted(s) + didYouMean(s, in.Options)
		}
	case InputNumber:
		if _, ok := parseNumber(s); !ok {
			return "must be a number of at most 15 digits, this is " + quoted(s)
		}
	}
	if len(s) > inputBytes || strings.ContainsRune(s, 0) {
		return fmt.Sprintf("must be text of at most %d bytes without NUL", inputBytes)
	}
	return ""
}

// InputReason is what is wrong with an input.
type InputReason string

// The reasons.
const (
	InputUnknown InputReason = "unknown" // no workflow that would start declares it
	InputMissing InputReason = "missing" // it is required and was not sent
	InputInvalid InputReason = "invalid" // it is not of its type
	InputTwice   InputReason = "twice"   // it was sent more than once
)

// InputError is one input of a manual run that is not as the workflow declares it. It is the caller's to mend, not
// the file's.
type InputError struct {
	// Workflow declares the input; empty with InputUnknown and InputTwice.
	Workflow string      `json:"workflow,omitempty"`
	Input    string      `json:"input"`
	Reason   InputReason `json:"reason"`
	Message  string      `json:"message"` // one sentence
	Fix      string      `json:"fix"`
}

func (e *InputError) Error() string { return e.Message }

// give sets Given from what was sent, and returns what is wrong with it. Only a manual run sends anything and is
// asked for what is required; every other run has the defaults. What s does not declare is left to others.
func (s *Spec) give(t pipeline.Trigger) []*InputError {
	if len(s.Inputs) == 0 {
		for _, in := range t.Inputs {
			s.Given = append(s.Given, Env{in.Key, in.Value})
		}
		return nil
	}
	name := baseName(s.File)
	var wrong []*InputError
	for _, in := range s.Inputs {
		i := slices.IndexFunc(t.Inputs, func(x pipeline.Input) bool { return x.Key == in.Key })
		switch {
		case i >= 0:
			v := t.Inputs[i].Value
			if why := in.refuses(v); why != "" {
				wrong = append(wrong, &InputError{name, in.Key, InputInvalid, "the input " + quoted(in.Key) + " of " + name + " " + why, "send another value"})
				continue
			}
			s.Given = append(s.Given, Env{in.Key, v})
		case in.Default != nil:
			s.Given = append(s.Given, Env{in.Key, *in.Default})
		case in.Required && t.Kind == pipeline.Manual:
			wrong = append(wrong, &InputError{name, in.Key, InputMissing, "the input " + quoted(in.Key) + " of " + name + " is required", "send it"})
		}
	}
	return wrong
}

// strangers are the inputs of t that none of specs declares, and those that were sent twice. A workflow that declares
// nothing takes everything.
func strangers(t pipeline.Trigger, specs []*Spec) []*InputError {
	var out []*InputError
	var known []string
	open := len(specs) == 0
	for _, s := range specs {
		open = open || len(s.Inputs) == 0
		for _, in := range s.Inputs {
			known = append(known, in.Key)
		}
	}
	seen := map[string]bool{}
	for _, in := range t.Inputs {
		switch {
		case seen[in.Key]:
			out = append(out, &InputError{"", in.Key, InputTwice, "the input " + quoted(in.Key) + " was sent twice", "send it once"})
		case !open && !slices.Contains(known, in.Key):
			out = append(out, &InputError{"", in.Key, InputUnknown, "no workflow has an input " + quoted(in.Key) + didYouMean(in.Key, known), "send one of " + list(slices.Compact(slices.Sorted(slices.Values(known))))})
		}
		seen[in.Key] = true
	}
	return out
}
