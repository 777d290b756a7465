// Package meter rewrites WebAssembly modules so that they can be stopped.
//
// A rewritten module has a budget of instructions, a global that the host can set.
// Loops, functions and long straight code take from it what they are about to
// execute, and when it is used up they call a function that the host offers: tick.
// It gives the next budget, or panics and so ends the call. Between two ticks a
// guest executes about as many instructions as tick gave, whatever it does:
//
//   - the head of a loop is charged with its dearest round, inner loops each with
//     theirs; a function with its dearest way through, unless it calls nothing and
//     has at most 64 instructions; code that runs longer than 1,024 instructions is
//     charged again on the way. Tail calls and exceptions are exits and ways like
//     any others. An innermost loop of at most 64 instructions that calls nothing
//     is written twice, and pays for two rounds at once.
//   - memory.fill, copy and init, and table.fill, copy and init, are charged before
//     they run, one unit for 16 bytes, and work in pieces of at most 256 KiB. What
//     they do, and when they trap, stays the same.
//   - table.grow is charged the whole table, and no table grows beyond
//     Options.TableMax.
//
// With Options.LazyTables a function comes into its table when it is called through
// it: see lazy.go.
//
// The host offers ImportTick in ImportModule, instantiates what Rewrite returns, and
// sets ExportBudget before each call:
//
//	out, info, err := meter.Rewrite(wasm, meter.Options{Merge: true})
//	...
//	budget := instance.ExportedGlobal(meter.ExportBudget).(api.MutableGlobal)
//	budget.Set(100_000)
//
// Jumps of Go's compiler, which all go through one dispatch at the head of a
// function, are followed to their labels: see dispatch.go. Names of functions are
// kept, and source lines of DWARF up to version 4, which is what wazero reads.
//
// Modules are taken for hostile: numbers are checked before they become
// allocations, and work is linear in the size of the module.
//
// # Caveats
//
// Every instruction counts one, though a division or a miss of the cache takes as
// long as dozens of others. A function that calls nothing and has at most 64
// instructions costs its caller four and its values. Charges are upper bounds: the
// way taken may be shorter than the dearest one. So the budget bounds time well and
// counts work roughly.
//
// Host functions are not metered; they have to look at the deadline themselves.
//
// Threads, shared memory, several memories, memories and tables of 64 bits, the
// exceptions of before try_table, relaxed SIMD and garbage collection are refused.
// So are functions of more than 7,654,321 bytes, 50,000 locals, 65,536 loops,
// 16,384 nested blocks, or a br_table of more than 65,520 targets, and types of more than
// 1,000 parameters or results, modules of more than 64 tables, 100,000 globals or
// segments, or 262,144 elements in them, and all together what would take the compiler too
// long: see Options.MaxEffort.
//
// What is refused is found while parsing. The module is not validated: the compiler
// does that, and what was invalid for it before stays so.
package meter
