;; Copies its input to its output, unless that begins with "x": then it says so
;; in its log and rejects it.
(module
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "reason" (func $reason (param i32 i32)))
  (import "mqrun_v1" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 20)
  (data (i32.const 0) "it begins with x")
  (func (export "mq_handle") (param $size i32) (result i32)
    (drop (call $input (i32.const 1024) (local.get $size)))
    (if (i32.eq (i32.load8_u (i32.const 1024)) (i32.const 120))
      (then
        (call $log (i32.const 2) (i32.const 0) (i32.const 16))
        (call $reason (i32.const 0) (i32.const 16))
        (return (i32.const 2))))
    (call $emit (i32.const 0) (i32.const 0) (i32.const 1024) (local.get $size))))
