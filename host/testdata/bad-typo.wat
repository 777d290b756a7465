(module
  (import "mqrun_v1" "emitt" (func (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "mq_handle") (param i32) (result i32) (i32.const 0)))
