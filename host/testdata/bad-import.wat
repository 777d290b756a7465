(module
  (import "mqrun_v1" "teleport" (func (param i32)))
  (memory (export "memory") 1)
  (func (export "mq_handle") (param i32) (result i32) (i32.const 0)))
