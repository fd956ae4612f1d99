package workflow

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func (d *decoder) clone(v *node, c *Clone) {
	var others []pair
	d.object(v, `"clone"`, cloneKeys(), func(p pair) {
		if p.key != "skip" {
			others = append(others, p)
		}
		switch p.key {
		case "skip":
			d.bool(p.key, p.at, p.value, &c.Skip)
		case "depth":
			d.depth(p.key, p.at, p.value, c)
		case "submodules":
			d.bool(p.key, p.at, p.value, &c.Submodules)
		case "tags":
			d.bool(p.key, p.at, p.value, &c.Tags)
		case "lfs":
			d.bool(p.key, p.at, p.value, &c.LFS)
		}
	})
	if c.Skip {
		for _, p := range others {
			d.warn(p.at, warnUnused, "remove it, or remove skip: true", `%s has no effect with "skip: true"`, quoted(p.key))
		}
	}
}

func (d *decoder) depth(key string, at pos, v *node, c *Clone) {
	d.int(key, at, v, 0, depthLimit, &c.Depth)
	if c.Depth == 0 {
		d.warn(v.at, warnUnused, "write depth: 1000000 for the whole history", `"depth: 0" means 1, the default`)
		c.Depth = 1
	}
}

func (d *decoder) caches(key string, at pos, v *node) []Cache {
	items := d.sequence(key, at, v, cachesLimit)
	out := make([]Cache, 0, len(items))
	lines := map[string]int{}
	for i, n := range items {
		c := d.cache(fmt.Sprintf("cache %d", i+1), n)
		if was, twice := lines[c.Key]; twice && c.Key != "" {
			d.err(n.at, codeTwice, "give it another key", "the cache %s is already on line %d", quoted(c.Key), was)
		}
		lines[c.Key] = n.at.line
		out = append(out, c)
	}
	return out
}

func (d *decoder) cache(where string, n *node) Cache {
	c := Cache{When: CacheOnSuccess}
	d.object(n, where, cacheKeys(), func(p pair) {
		switch p.key {
		case "key":
			c.Key = d.word(p.key, p.at, p.value, cacheKeyLimit)
		case "paths":
			c.Paths = d.inside(p.key, p.at, p.value, true)
		case "hash":
			c.Hash = d.inside(p.key, p.at, p.value, false)
		case "fallback":
			d.bool(p.key, p.at, p.value, &c.Fallback)
		case "compression-level":
			d.int(p.key, p.at, p.value, 1, levelLimit, &c.CompressionLevel)
		case "when":
			d.choice(p, cacheWhens(), "a cache is saved", &c.When)
		}
	})
	return c
}

// cacheWhens is when a cache may be saved.
func cacheWhens() []string { return []string{CacheOnSuccess, CacheAlways} }

// inside reads paths that must not climb out of where they start. Those with anywhere may start at the
// home folder or the root.
func (d *decoder) inside(key string, at pos, v *node, anywhere bool) []string {
	var out []string
	d.texts(key, at, v, d.lim.List, func(n *node, s string) {
		switch {
		case slices.Contains(strings.Split(s, "/"), ".."):
			d.err(n.at, codeValue, "write the path without ..", "the path %s climbs out of its folder", quoted(s))
		case !anywhere && (strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~")):
			d.err(n.at, codeValue, "write a path inside the repository", "%s names files of the repository, this is %s", quoted(key), quoted(s))
		default:
			out = append(out, s)
		}
	})
	if v.kind == sequence && len(v.items) == 0 && anywhere {
		d.err(v.at, codeRequired, "add a path, or remove the cache", "%s is empty", quoted(key))
	}
	return out
}

func (d *decoder) dependencies(key string, at pos, v *node) Dependencies {
	var out Dependencies
	if v.kind != mapping {
		d.texts(key, at, v, d.lim.List, func(_ *node, s string) { out.Packages = append(out.Packages, s) })
		return out
	}
	if len(v.pairs) > d.lim.List {
		d.err(v.at, codeLimit, "use fewer registries", "%s has %d registries, more than the %d allowed", quoted(key), len(v.pairs), d.lim.List)
		return out
	}
	for _, p := range v.pairs {
		r := Registry{Name: p.key}
		if p.key == "" {
			d.err(p.at, codeValue, "write a registry such as nixpkgs", "a registry has no name")
		}
		d.texts(p.key, p.at, p.value, d.lim.List, func(_ *node, s string) { r.Packages = append(r.Packages, s) })
		out.Registries = append(out.Registries, r)
	}
	return out
}

// microvm reads the keys that only that engine has.
func (d *decoder) microvm(s *Spec, keys []pair) {
	if len(keys) == 0 {
		return
	}
	m := s.Microvm
	if m == nil {
		m = &MicrovmSpec{}
	}
	for _, p := range keys {
		if s.Engine != Microvm && s.Engine != Dummy {
			d.wrongEngine(p, s.Engine)
			continue
		}
		switch p.key {
		case "registry":
			m.Registry = d.strings(p)
		case "caches":
			d.warn(p.at, warnOld, "rename it to substituters", `"caches" is the earlier name of "substituters"`)
			d.mend(p.at, p.key, "substituters")
			fallthrough
		case "substituters":
			if m.Substituters != nil {
				d.err(p.at, codeTwice, "keep substituters only", `"caches" and "substituters" are the same key`)
			}
			m.Substituters = d.strings(p)
		case "virtualisation":
			m.Virtualisation = d.nix(p)
		}
	}
	s.Microvm = m
}

func (d *decoder) wrongEngine(p pair, engine string) {
	if p.key == "caches" {
		d.err(p.at, codeKey, "rename it to cache", "unknown key %s in the workflow; did you mean %s?", quoted(p.key), quoted("cache"))
		d.mend(p.at, p.key, "cache")
		return
	}
	d.err(p.at, codeKey, "remove it, or use engine: microvm", "the key %s belongs to engine microvm, this workflow uses %s", quoted(p.key), engine)
}

// strings reads a mapping of text to text.
func (d *decoder) strings(p pair) []Env {
	if p.value.kind != mapping || len(p.value.pairs) > d.lim.List {
		d.err(p.value.at, codeType, "write name: value pairs", "%s must be a mapping of at most %d texts, this is %s", quoted(p.key), d.lim.List, p.value)
		return nil
	}
	out := make([]Env, 0, len(p.value.pairs))
	for _, q := range p.value.pairs {
		if v := d.word(q.key, q.at, q.value, textLimit); v != "" {
			out = append(out, Env{q.key, v})
		}
	}
	return out
}

// nix keeps a mapping as JSON, for the engine to hand on.
func (d *decoder) nix(p pair) json.RawMessage {
	if p.value.kind != mapping {
		d.err(p.value.at, codeType, "write the options as keys", "%s must be a mapping of NixOS options, this is %s", quoted(p.key), p.value)
		return nil
	}
	var b strings.Builder
	asJSON(&b, p.value)
	return json.RawMessage(b.String())
}

// jsonNumber is a plain scalar that JSON writes the same way.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// asJSON writes n with the types of YAML's core schema, keys in the order of the file.
func asJSON(b *strings.Builder, n *node) {
	switch n.kind {
	case null:
		b.WriteString("null")
	case scalar:
		if n.plain && (n.text == "true" || n.text == "false" || jsonNumber.MatchString(n.text)) {
			b.WriteString(n.text)
			return
		}
		jsonText(b, n.text)
	case sequence:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			asJSON(b, item)
		}
		b.WriteByte(']')
	case mapping:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			jsonText(b, p.key)
			b.WriteByte(':')
			asJSON(b, p.value)
		}
		b.WriteByte('}')
	}
}

func jsonText(b *strings.Builder, s string) {
	text, err := json.Marshal(s)
	if err != nil { // a string always marshals
		text = []byte(`""`)
	}
	b.Write(text)
}
