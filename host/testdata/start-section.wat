;; Calls host functions before it is instantiated, from its start function.
(module
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "log" (func $log (param i32 i32 i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "starting")
  (global $said (mut i32) (i32.const 0))
  (func $start
    (drop (call $input (i32.const 32) (i32.const 32)))
    (call $log (i32.const 1) (i32.const 0) (i32.const 8))
    (global.set $said (call $emit (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 8))))
  (start $start)
  (func (export "mq_handle") (param i32) (result i32) (global.get $said)))
