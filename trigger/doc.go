// Package trigger turns accepted events into pipelines: it reads the workflow files at the commit, compiles
// them, asks the gate, decides the trust of the run and plans its workflows.
//
// It owns no state. An event is a durable row before it arrives here and stays one until it is settled, so
// a kill at any point repeats the planning of that event and nothing else; the store makes the second plan
// of one event the first one's pipeline. Events of one repository are planned in order; a slow or broken
// repository holds up no other. Every event ends visibly: a pipeline, or a state with a sentence
// (skipped, nothing matched, refused, gone).
//
// Nothing here runs code of a repository, and no file is read twice: what was compiled is stored with the
// pipeline and is what runs.
package trigger
