;; The slowest instructions there are, in one line.
(module
  (memory (export "memory") 1)
  (func $divide (local $x i64) (local $y f64)
    (local.set $x (i64.const -9223372036854775807))
    (local.set $y (f64.const 1e300))
    (loop $l
      (local.set $x (i64.or (i64.div_s (i64.or (i64.div_s (i64.or (i64.rem_s (local.get $x) (i64.const 1234567891)) (i64.const -9123372036854775807)) (i64.const 3)) (i64.const -9223372036854775807)) (i64.const 7)) (i64.const -9023372036854775807)))
      (local.set $y (f64.sqrt (f64.div (f64.sqrt (local.get $y)) (f64.const 1e-300))))
      (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $divide) (i32.const 0)))
