;; Fills and copies a table of the largest size that it may have.
(module
  (memory (export "memory") 1)
  (table $t 65536 funcref)
  (func $tables
    (loop $l
      (table.fill $t (i32.const 0) (ref.null func) (i32.const 65536))
      (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 65535))
      (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $tables) (i32.const 0)))
