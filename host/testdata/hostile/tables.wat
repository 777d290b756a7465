;; Grows a table for ever.
(module
  (memory (export "memory") 1)
  (table $t 1 funcref)
  (func $tables (loop $l (drop (table.grow $t (ref.null func) (i32.const 1000))) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $tables) (i32.const 0)))
