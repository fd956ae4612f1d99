package workflow

// The codes of diagnostics. They are stable: tools and people search for them.
const (
	codeYAML      = "E-WF-YAML"      // not YAML
	codeEncoding  = "E-WF-ENCODING"  // not UTF-8, or control characters
	codeTab       = "E-WF-TAB"       // a tab in the indentation
	codeEmpty     = "E-WF-EMPTY"     // nothing in the file
	codeDocuments = "E-WF-DOCUMENTS" // more than one document
	codeAnchor    = "E-WF-ANCHOR"    // an alias that has no anchor, or holds itself
	codeMerge     = "E-WF-MERGE"     // a merge key whose value is no mapping
	codeTag       = "E-WF-TAG"       // custom tag or directive
	codeTwice     = "E-WF-TWICE"     // the same key, name or entry twice
	codeLimit     = "E-WF-LIMIT"     // larger than allowed
	codeKey       = "E-WF-KEY"       // unknown key
	codeExpr      = "E-WF-EXPR"      // an expression that cannot be read, or whose types do not fit
	codeTemplate  = "E-WF-TEMPLATE"  // ${{ }} where nothing is filled in
	codeNeeds     = "E-WF-NEEDS"     // needs that cannot be met: unknown, or in a circle
	codeInput     = "E-WF-INPUT"     // an input of a manual run that the workflow does not take
	codeOffer     = "E-WF-OFFER"     // a key of the language that this version does not offer
	codeRequired  = "E-WF-REQUIRED"  // something is missing
	codeType      = "E-WF-TYPE"      // a list where text is wanted, and the like
	codeValue     = "E-WF-VALUE"     // a value outside what is allowed
	codeEnv       = "E-WF-ENV"       // a variable that no environment can hold
	codeEvent     = "E-WF-EVENT"     // unknown event or type
	codeGlob      = "E-WF-GLOB"      // a pattern that cannot be read
	codeCron      = "E-WF-CRON"      // a time table that cannot be read
	codeZone      = "E-WF-ZONE"      // unknown time zone
	codeEngine    = "E-WF-ENGINE"    // unknown engine, or not offered here
	codeDialect   = "E-WF-DIALECT"   // the language of another system
	codeFile      = "E-WF-FILE"      // a file name that cannot name a workflow
	codeOnly      = "E-WF-ONLY"      // a workflow asked for by a name that is not there

	warnHere     = "W-WF-HERE"     // a key that this server does not carry out
	warnNever    = "W-WF-NEVER"    // a condition that never matches
	warnUnused   = "W-WF-UNUSED"   // a key without effect
	warnReserved = "W-WF-RESERVED" // a variable that the server sets
	warnOld      = "W-WF-OLD"      // an earlier name of a key
	warnFile     = "W-WF-FILE"     // a file that is no workflow
)
