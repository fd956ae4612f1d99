package knot

type SubmoduleError struct{ Temporary bool }

func (*SubmoduleError) Error() string { return "" }
