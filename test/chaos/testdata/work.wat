;; Does what the first letter of its input says, and emits the rest:
;;   e emit it   f emit it twice, ending in a and in b   r reject   d drop
;;   t retry at the first attempt, then as e             s as e, slowly
;;   p as e, after a pause of 50 ms
;; Every call is logged with its input.
(module
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "log" (func $log (param i32 i32 i32)))
  (import "mqrun_v1" "meta_i64" (func $meta_int (param i32) (result i64)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 4)
  (func $rest (param $size i32) (result i32)
    (call $emit (i32.const 0) (i32.const 0) (i32.const 1) (i32.sub (local.get $size) (i32.const 1))))
  (func $spin (local $n i32)
    (loop $more
      (local.set $n (i32.add (local.get $n) (i32.const 1)))
      (br_if $more (i32.lt_u (local.get $n) (i32.const 3000000)))))
  ;; One subscription at 8192: to the monotonic clock (1 at 16), for some ns (at 24).
  (func $pause
    (i32.store (i32.const 8208) (i32.const 1))
    (i64.store (i32.const 8216) (i64.const 50000000))
    (if (call $poll (i32.const 8192) (i32.const 8256) (i32.const 1) (i32.const 8320)) (then unreachable)))
  (func (export "mq_handle") (param $size i32) (result i32)
    (local $kind i32) (local $last i32)
    (drop (call $input (i32.const 0) (local.get $size)))
    (call $log (i32.const 1) (i32.const 0) (local.get $size))
    (local.set $kind (i32.load8_u (i32.const 0)))
    (local.set $last (i32.sub (local.get $size) (i32.const 1)))
    (if (i32.eq (local.get $kind) (i32.const 114)) (then (return (i32.const 2))))
    (if (i32.eq (local.get $kind) (i32.const 100)) (then (return (i32.const 3))))
    (if (i32.eq (local.get $kind) (i32.const 116)) (then
      (if (i64.eq (call $meta_int (i32.const 1)) (i64.const 1)) (then (return (i32.const 1))))))
    (if (i32.eq (local.get $kind) (i32.const 115)) (then (call $spin)))
    (if (i32.eq (local.get $kind) (i32.const 112)) (then (call $pause)))
    (if (i32.eq (local.get $kind) (i32.const 102)) (then
      (i32.store8 (local.get $last) (i32.const 97))
      (drop (call $rest (local.get $size)))
      (i32.store8 (local.get $last) (i32.const 98))))
    (call $rest (local.get $size))))
