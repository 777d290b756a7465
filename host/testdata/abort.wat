;; Fails as AssemblyScript does: env.abort(message, file, line, column) with UTF-16 strings.
(module
  (import "env" "abort" (func $abort (param i32 i32 i32 i32)))
  (import "env" "seed" (func $seed (result f64)))
  (memory (export "memory") 1)
  (data (i32.const 4) "\08\00\00\00b\00o\00o\00m\00")
  (data (i32.const 28) "\08\00\00\00h\00.\00t\00s\00")
  (func (export "mq_handle") (param i32) (result i32)
    (call $abort (i32.const 8) (i32.const 32) (i32.const 3) (i32.const 5))
    (unreachable)))
