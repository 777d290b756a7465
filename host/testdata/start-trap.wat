;; Does not survive its start function.
(module
  (memory (export "memory") 64)
  (func $start (unreachable))
  (start $start)
  (func (export "mq_handle") (param i32) (result i32) (i32.const 0)))
