;; Starts as config("mode") says: fail, spin, trap, emit; otherwise well. The
;; verdict is how often _initialize and mq_init ran: ten and one.
(module
  (import "mqrun_v1" "config" (func $config (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "reason" (func $reason (param i32 i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "mode")
  (data (i32.const 16) "no database")
  (global $ran (mut i32) (i32.const 0))
  (func (export "_initialize")
    (global.set $ran (i32.add (global.get $ran) (i32.const 10))))
  (func (export "mq_init") (result i32)
    (local $mode i32)
    (global.set $ran (i32.add (global.get $ran) (i32.const 1)))
    (drop (call $config (i32.const 0) (i32.const 4) (i32.const 64) (i32.const 1)))
    (local.set $mode (i32.load8_u (i32.const 64)))
    (if (i32.eq (local.get $mode) (i32.const 102)) ;; f
      (then (call $reason (i32.const 16) (i32.const 11)) (return (i32.const 7))))
    (if (i32.eq (local.get $mode) (i32.const 115)) (then (loop $l (br $l)))) ;; s
    (if (i32.eq (local.get $mode) (i32.const 116)) (then (unreachable))) ;; t
    (if (i32.eq (local.get $mode) (i32.const 101)) ;; e
      (then (return (call $emit (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 4)))))
    (i32.const 0))
  (func (export "mq_handle") (param i32) (result i32) (global.get $ran)))
