;; Writes 32 MiB to stderr, in one piece a thousand times over, for ever.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 512)
  (func $flood (local $at i32)
    (loop $iovs
      (i32.store offset=1024 (local.get $at) (i32.const 65536))
      (i32.store offset=1028 (local.get $at) (i32.const 33488896))
      (local.set $at (i32.add (local.get $at) (i32.const 8)))
      (br_if $iovs (i32.lt_u (local.get $at) (i32.const 8192))))
    (loop $l (drop (call $write (i32.const 2) (i32.const 1024) (i32.const 1024) (i32.const 0))) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $flood) (i32.const 0)))
