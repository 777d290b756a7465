;; Fills and copies 32 MiB in a loop: two instructions that run for long.
(module
  (memory (export "memory") 512)
  (func $bulk
    (loop $l
      (memory.fill (i32.const 0) (i32.const 1) (i32.const 33554432))
      (memory.copy (i32.const 1) (i32.const 0) (i32.const 33554431))
      (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $bulk) (i32.const 0)))
