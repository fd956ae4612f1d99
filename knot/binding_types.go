package knot

type Directory interface{}
type Prover interface{}
type Lister interface{}
type BindError struct{ Temporary bool }

func (*BindError) Error() string { return "" }

type SubmoduleError struct{ Temporary bool }

func (*SubmoduleError) Error() string { return "" }
