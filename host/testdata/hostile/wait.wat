;; Waits on an atomic that nobody notifies.
(module
  (memory (export "memory") 1 1 shared)
  (func (export "mq_handle") (param i32) (result i32)
    (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1))))
