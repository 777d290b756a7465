;; Recursion that never comes back, with much to keep in every frame.
(module
  (memory (export "memory") 1)
  (func $deep (param $a i64) (param $b i64) (param $c i64) (param $d i64) (result i64)
    (i64.add (i64.add (local.get $a) (i64.mul (local.get $b) (local.get $c)))
      (i64.add (local.get $d)
        (call $deep (i64.add (local.get $a) (i64.const 1)) (i64.xor (local.get $b) (local.get $a))
          (i64.sub (local.get $c) (local.get $b)) (i64.rotl (local.get $d) (local.get $a))))))
  (func (export "mq_handle") (param i32) (result i32)
    (i32.wrap_i64 (call $deep (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)))))
