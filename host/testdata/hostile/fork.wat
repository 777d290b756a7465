;; Branching recursion: 2^60 calls and not one loop.
(module
  (memory (export "memory") 1)
  (func $fork (param $n i32) (result i32)
    (if (result i32) (i32.eqz (local.get $n))
      (then (i32.const 1))
      (else (i32.add
        (call $fork (i32.sub (local.get $n) (i32.const 1)))
        (call $fork (i32.sub (local.get $n) (i32.const 1)))))))
  (func (export "mq_handle") (param i32) (result i32) (drop (call $fork (i32.const 60))) (i32.const 0)))
