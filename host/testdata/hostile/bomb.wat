;; Takes all the memory there is, writes to every page of it, and gives up.
(module
  (memory (export "memory") 1)
  (func $fill (local $at i32) (local $end i32)
    (loop $grow (br_if $grow (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (local.set $end (i32.shl (memory.size) (i32.const 16)))
    (loop $touch
      (i32.store (local.get $at) (i32.const 1))
      (local.set $at (i32.add (local.get $at) (i32.const 4096)))
      (br_if $touch (i32.lt_u (local.get $at) (local.get $end))))
    (unreachable))
  (func (export "mq_handle") (param i32) (result i32) (call $fill) (i32.const 0)))
