(module
  (memory (export "memory") 1)
  (func (export "mq_batch") (param i32) (result i32) (i32.const 0))
  (func (export "mq_handle") (param i32) (result i32) (i32.const 0)))
