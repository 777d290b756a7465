;; Follows a chain of pointers all over 64 MiB: as few instructions as can be for the time that they take.
(module
  (memory (export "memory") 1000)
  (func $chase (local $at i32)
    (loop $make
      (i32.store (local.get $at) (i32.rem_u (i32.add (local.get $at) (i32.const 16777216)) (i32.const 65535872)))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $make (i32.lt_u (local.get $at) (i32.const 65535872))))
    (local.set $at (i32.const 0))
    (loop $l
      (local.set $at (i32.load (i32.load (i32.load (i32.load (local.get $at))))))
      (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $chase) (i32.const 0)))
