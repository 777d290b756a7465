;; Sleeps as many seconds as the digit says that its input begins with, then
;; copies the input to its output.
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "mq_handle") (param $size i32) (result i32)
    (drop (call $input (i32.const 1024) (local.get $size)))
    ;; One subscription at 0: to the monotonic clock (1 at 16), for some ns (at 24).
    (i32.store (i32.const 16) (i32.const 1))
    (i64.store (i32.const 24) (i64.mul (i64.const 1000000000)
      (i64.extend_i32_u (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48)))))
    (if (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)) (then unreachable))
    (call $emit (i32.const 0) (i32.const 0) (i32.const 1024) (local.get $size))))
