;; A start section that does not end.
(module
  (memory (export "memory") 1)
  (func $start (loop $l (br $l)))
  (start $start)
  (func (export "mq_handle") (param i32) (result i32) (i32.const 0)))
