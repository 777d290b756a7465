;; Logs its whole memory for ever.
(module
  (import "mqrun_v1" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 16)
  (func $logs (loop $l (call $log (i32.const 3) (i32.const 0) (i32.const 1048576)) (br $l)))
  (func (export "mq_handle") (param i32) (result i32) (call $logs) (i32.const 0)))
