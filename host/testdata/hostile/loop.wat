;; An endless loop with nothing in it.
(module
  (memory (export "memory") 1)
  (func $spin (loop $l (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $spin) (i32.const 0)))
