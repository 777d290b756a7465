package meter

// frame is an open block while a function is scanned. Costs are what has been
// run up since the last charge on the dearest path there, 'unpaid' for short.
type frame struct {
	kind    byte  // codeBlock, codeLoop, codeIf, codeElse, tryTable; codeEnd: the function
	dead    bool  // nothing gets here
	reached bool  // a branch goes to its label
	arity   int32 // values that a branch to its label takes
	enter   int32 // unpaid on entry
	most    int32 // the most that arrives at its label by a branch; of a loop: goes back
	inside  int32 // try_table: the most unpaid in it, where it may throw
	wrap    int32 // loop: what is put around it, or none
	edit    int32 // loop: its check; try_table: the try_table around it
	locals  int32 // loop: its set of locals; else of the loop around it, or none
	catch   int32 // try_table: its first label in scanner.catches
	order   int32 // loop: its dispatch; block of a dispatch: its label; else none
	before  int32 // added blocks around it, and around its label
	outside int32
}

const (
	tryTable = 0x1f
	none     = -1
)

// arrive notes a branch to the label of f with this much unpaid.
func (f *frame) arrive(unpaid int32) {
	f.reached = true
	f.most = max(f.most, unpaid)
}
