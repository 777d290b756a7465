(module
  (memory (export "memory") 1)
  (func (export "mq_handle") (param i64) (result i32) (i32.const 0)))
