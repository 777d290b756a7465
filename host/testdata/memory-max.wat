;; Declares more memory than any limit allows; the verdict is what memory.grow says to a page beyond 32 MiB.
(module
  (memory (export "memory") 256 32768)
  (func (export "mq_handle") (param i32) (result i32)
    (drop (memory.grow (i32.const 256)))
    (memory.grow (i32.const 1))))
