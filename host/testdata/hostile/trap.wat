;; Traps on an empty payload, with a shadow stack that nobody restores; echoes any other.
(module
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $stack (mut i32) (i32.const 65536))
  (func $boom (param $n i32) (result i32)
    (global.set $stack (i32.sub (global.get $stack) (i32.const 4096)))
    (i32.store (global.get $stack) (local.get $n))
    (if (i32.eqz (local.get $n)) (then (unreachable)))
    (drop (call $input (i32.const 0) (i32.const 1024)))
    (global.set $stack (i32.add (global.get $stack) (i32.const 4096)))
    (call $emit (i32.const 0) (i32.const 0) (i32.const 0) (local.get $n)))
  (func (export "mq_handle") (param $n i32) (result i32) (call $boom (local.get $n))))
