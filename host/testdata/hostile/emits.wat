;; Emits one byte for ever.
(module
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $emits (loop $l (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1))) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $emits) (i32.const 0)))
