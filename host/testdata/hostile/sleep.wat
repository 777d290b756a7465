;; Sleeps for an hour, again and again.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $sleep
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.const 3600000000000))
    (loop $l (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $sleep) (i32.const 0)))
