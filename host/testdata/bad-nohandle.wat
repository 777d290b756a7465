(module
  (memory (export "memory") 1)
  (func (export "handle") (param i32) (result i32) (i32.const 0))
  (func (export "alloc") (param i32) (result i32) (i32.const 0)))
