;; Asks for 32 MiB of random bytes for ever.
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 512)
  (func $flood (loop $l (drop (call $random (i32.const 0) (i32.const 33554432))) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $flood) (i32.const 0)))
