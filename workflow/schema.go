package workflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SchemaPath is where every server has the schema. It is the schema's $id as well, against the address that it was
// fetched from.
const SchemaPath = "/schema/workflow.json"

// Schema is the language as a JSON Schema (2020-12), for editors. It takes every file that Parse takes under lim,
// and refuses what can be said of values alone: a schema does not see quotes, compare times or read patterns.
func Schema(lim Limits) ([]byte, error) {
	lim = lim.filled()
	root := object(workflowKeys)(lim)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["$id"] = SchemaPath
	root["title"] = "Workflow of a spindle"
	root["description"] = "One file of " + Dir + " is one workflow."
	root["allOf"] = byEngine(lim)
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return append(out, '\n'), nil
}

// rules are the keywords of one schema.
type rules map[string]any

// form makes the schema of a value.
type form func(Limits) rules

// always is the form that depends on no limit.
func always(r rules) form { return func(Limits) rules { return maps.Clone(r) } }

// old marks a key that has a new name.
func (s form) old() form {
	return func(l Limits) rules {
		r := s(l)
		r["deprecated"] = true
		return r
	}
}

// scalars are what YAML makes of plain words; the language takes all of them for the text that was written.
func scalars() []string { return []string{"string", "number", "boolean"} }

// control are the characters that no line of text holds.
const control = `\x00-\x1f\x7f-\x9f`

// word is what decoder.word reads.
func word(most int) form {
	return always(rules{
		"type": scalars(), "maxLength": most, "pattern": `^[^` + control + `]*[^\s` + control + `][^` + control + `]*$`,
	})
}

// with adds rules to a form.
func (s form) with(more rules) form {
	return func(l Limits) rules {
		r := s(l)
		maps.Copy(r, more)
		return r
	}
}

// entry is what decoder.texts hands on.
func entry() form {
	return always(rules{"type": scalars(), "maxLength": textLimit, "pattern": `^[^` + control + `]+$`})
}

func oneOf(words []string) form { return always(rules{"enum": words}) }

// oneOrMore is one value, or a list of at most most.
func oneOrMore(one form, most int) form {
	return func(l Limits) rules {
		return rules{"anyOf": []rules{one(l), {"type": "array", "items": one(l), "maxItems": most}}}
	}
}

// object is a mapping of the keys and no others.
func object(keys func() []key) form {
	return func(l Limits) rules {
		properties, required := rules{}, []string{}
		for _, k := range keys() {
			v := k.value(l)
			v["description"] = k.about
			properties[k.name] = v
			if k.need != "" {
				required = append(required, k.name)
			}
		}
		r := rules{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			r["required"] = required
		}
		return r
	}
}

// listOf is a list of least to most objects.
func listOf(keys func() []key, least int, most func(Limits) int) form {
	return func(l Limits) rules {
		r := rules{"type": "array", "items": object(keys)(l), "maxItems": most(l)}
		if least > 0 {
			r["minItems"] = least
		}
		return r
	}
}

func boolean(without bool) form { return always(rules{"type": "boolean", "default": without}) }

// whole is a whole number, in quotes or not.
func whole(least, most int) form {
	return always(rules{"anyOf": []rules{
		{"type": "integer", "minimum": least, "maximum": most}, {"type": "string", "pattern": `^[-+]?[0-9]+$`},
	}})
}

func duration() form {
	return always(rules{"type": "string", "pattern": `^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$`, "examples": []string{"90s", "20m", "1h30m"}})
}

func labels() form {
	return oneOrMore(entry().with(rules{"pattern": label.String(), "minimum": 0}), labelsLimit)
}

func patterns() form {
	return func(l Limits) rules {
		one := entry().with(rules{"maxLength": l.PatternBytes, "not": rules{"const": "!"}})
		return oneOrMore(one, l.Patterns)(l)
	}
}

func timeTable() form {
	words := strings.Join(slices.Sorted(maps.Keys(cronWords())), "|")
	return word(cronLimit).with(rules{"type": "string", "pattern": `^\s*(` + words + `|\S+(\s+\S+){4})\s*$`, "examples": []string{"H 2 * * *", "@daily"}})
}

func zone() form {
	return word(nameLimit).with(rules{"type": "string", "not": rules{"const": "Local"}, "default": "UTC"})
}

// variables is an environment.
func variables() form {
	return func(l Limits) rules {
		return rules{
			"type": "object", "maxProperties": l.Environment,
			"propertyNames":        rules{"pattern": variable.String(), "maxLength": variableLimit},
			"additionalProperties": rules{"type": scalars(), "maxLength": l.ValueBytes, "pattern": `^[^\x00]*$`},
		}
	}
}

// commandText is text that a plain number is not.
func commandText() form {
	return func(l Limits) rules {
		return rules{"type": []string{"string", "boolean"}, "maxLength": l.ValueBytes, "allOf": []rules{{"pattern": `\S`}, {"pattern": `^[^\x00]*$`}}}
	}
}

func audience() form {
	return word(audienceLimit).with(rules{"not": rules{"type": "string", "pattern": `^[dD][iI][dD]:`}})
}

// inside is a path or more; anywhere as in decoder.inside.
func inside(anywhere bool) form {
	return func(l Limits) rules {
		out := `(^|/)\.\.(/|$)`
		if !anywhere {
			out += `|^[/~]`
		}
		r := oneOrMore(entry().with(rules{"not": rules{"type": "string", "pattern": out}}), l.List)(l)
		if anywhere {
			r["minItems"] = 1
		}
		return r
	}
}

// packages is a list, or lists by registry.
func packages() form {
	return func(l Limits) rules {
		names := oneOrMore(entry(), l.List)
		return rules{"anyOf": []rules{
			names(l),
			{"type": "object", "maxProperties": l.List, "propertyNames": rules{"minLength": 1}, "additionalProperties": names(l)},
		}}
	}
}

// pairs is what decoder.strings reads.
func pairs() form {
	return func(l Limits) rules {
		return rules{"type": "object", "maxProperties": l.List, "additionalProperties": word(textLimit)(l)}
	}
}

// options is a mapping that the engine reads.
func options() form { return always(rules{"type": "object"}) }

// filled says that a list, where it is one, has an entry.
func (s form) filled() form { return s.with(rules{"minItems": 1}) }

// oneForm is a value of either form.
func oneForm(a, b form) form {
	return func(l Limits) rules { return rules{"anyOf": []rules{a(l), b(l)}} }
}

// mapOf is a mapping of at most most names to values.
func mapOf(name string, most int, value form) form {
	return func(l Limits) rules {
		return rules{"type": "object", "maxProperties": most, "propertyNames": rules{"pattern": name}, "additionalProperties": value(l)}
	}
}

// expression is what decoder.expression reads; the schema does not look inside.
func expression() form {
	return always(rules{"type": []string{"string", "boolean"}, "minLength": 1, "maxLength": exprBytes, "examples": []string{"always()", "trigger.branch == 'main'"}})
}

func template() form { return word(groupBytes) }

func span() form {
	return always(rules{"type": "string", "pattern": `^(\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[0-9]{1,4}d)$`, "examples": []string{"24h", "30d"}})
}

func needs() form {
	return oneOrMore(entry().with(rules{"pattern": fileName.String(), "not": rules{"type": "string", "pattern": `\.ya?ml$`}}), needsLimit)
}

// matrix is what decoder.matrix reads.
func matrix() form {
	return func(l Limits) rules {
		value := entry().with(rules{"maxLength": cellValueLimit})
		cells := rules{
			"type": "array", "maxItems": l.Cells,
			"items": rules{
				"type": "object", "minProperties": 1, "propertyNames": rules{"pattern": wordKey.String()},
				"additionalProperties": word(cellValueLimit)(l),
			},
		}
		return rules{
			"type": "object", "minProperties": 1, "maxProperties": axesLimit + 2,
			"properties": rules{"include": cells, "exclude": cells}, "propertyNames": rules{"pattern": wordKey.String()},
			"additionalProperties": oneOrMore(value, l.Cells).filled()(l),
		}
	}
}

// inputForm is one declared input. Only a choice has options, and has them always.
func inputForm() form {
	return func(l Limits) rules {
		r := object(inputKeys)(l)
		choice := rules{"properties": rules{"type": rules{"const": InputChoice}}, "required": []string{"type"}}
		r["if"], r["then"] = choice, rules{"required": []string{"options"}, "properties": rules{"options": rules{"minItems": 1}}}
		r["else"] = rules{"properties": rules{"options": false}}
		return r
	}
}

func secretNames() form {
	return func(l Limits) rules {
		return oneOrMore(entry().with(rules{"pattern": variable.String(), "maxLength": secretLimit}), l.List)(l)
	}
}

func ports() form {
	return oneOrMore(always(rules{"anyOf": []rules{
		{"type": "integer", "minimum": 1, "maximum": 65535}, {"type": "string", "pattern": `^\+?0*[1-9][0-9]{0,4}$`},
	}}), portsLimit)
}

func network() form {
	return func(l Limits) rules {
		return rules{"anyOf": []rules{
			{"enum": []string{NetworkNone, NetworkInternet}},
			{"type": "array", "minItems": 1, "maxItems": l.List, "items": entry().with(rules{"pattern": hostPattern.String()})(l)},
		}}
	}
}

// files is what decoder.files reads.
func files() form {
	return func(l Limits) rules {
		one := entry().with(rules{"maxLength": l.PatternBytes, "not": rules{"type": "string", "pattern": `^!$|(^!?|/)\.\.(/|$)|^!?~`}})
		return oneOrMore(one, l.Patterns).filled()(l)
	}
}

// services are containers, for the engines that have them.
func services(l Limits) rules {
	return mapOf(hostLabel.String(), servicesLimit, object(serviceKeys))(l)
}

// byEngine are the rules that depend on the engine, as in decoder.suits.
func byEngine(lim Limits) []rules {
	none := rules{}
	for _, k := range microvmOnly() {
		none[k] = false
	}
	// Without the key the engine is sandbox, and a condition on a key that is absent holds.
	engine := func(names ...string) rules { return rules{"properties": rules{"engine": rules{"enum": names}}} }
	named := func(name string) rules {
		r := engine(name)
		r["required"] = []string{"engine"}
		return r
	}
	then := func(cond, properties rules) rules { return rules{"if": cond, "then": rules{"properties": properties}} }
	return []rules{
		then(engine(Sandbox), rules{"image": rules{"pattern": imageReference.String()}}),
		then(engine(Sandbox, Nixery, Dummy), rules{"services": services(lim)}),
		then(named(Nixery), rules{"image": false, "dependencies": rules{"type": "object"}}),
		then(named(Microvm), rules{"dependencies": rules{"not": rules{"type": "object"}}}),
		then(engine(Sandbox, Nixery), none),
		{"not": rules{"required": []string{"caches", "substituters"}}},
	}
}
