package meter

// The unit of the budget is one instruction. Blocks, loops, their ends and nop
// cost nothing, since nothing is left of them when compiled. What moves values
// costs one more for each: calls for parameters and results, branches for the
// values that their label takes.
const (
	// stride is the most that a path runs up unpaid before it is charged.
	stride = 1024
	// tinyLeaf is the cost up to which a function that calls nothing is free;
	// each call of it costs the caller costCall.
	tinyLeaf = 64

	costCall = 4
	// memory.grow and table.grow leave native code and ask the system.
	costGrow = 64
	// bulkInline bytes are moved by the instruction itself, for costBulk;
	// more go through a function that charges them and works in pieces.
	bulkInline = 1024
	costBulk   = 16
	// bulkPiece is the most bytes moved between two checks, one unit for
	// 1<<bulkShift of them: 16, which is what memory is moved at.
	bulkPiece = 1 << 18
	bulkShift = 4
	// The same in elements of eight bytes.
	tablePiece = bulkPiece / 8
	tableShift = bulkShift - 3

	// maxCharge bounds what one check takes. The most is run up by a call with
	// maxArity parameters and results that throws to a label of maxArity values.
	maxCharge = 3 * stride
)

// MinRefill is what tick may give to any module: less than Info.MinRefill of a
// module could be used up by the check that called tick, over and over.
const MinRefill = 2 * maxCharge

// What one module may have. A few bytes of each take dozens in every instance.
const (
	maxTables   = 64
	maxGlobals  = 100_000
	maxElements = 1 << 18 // in all element segments
	maxSegments = 100_000 // of elements, and of data after merging
)

// What one function may have. All but depth, loops and helpers are what browsers
// allow, and far beyond what compilers make; without them a few bytes could ask
// for gigabytes here or in wazero.
const (
	maxBody    = 7_654_321 // bytes
	maxLocals  = 50_000
	maxTargets = 65_520 // of one br_table
	maxLoops   = 1 << 16
	// maxDepth of blocks: Go's compiler makes one for each call of a function.
	maxDepth = 1 << 14
	// maxHelpers of one module: each is some twenty times as long as what it is for.
	maxHelpers = 1000
)
