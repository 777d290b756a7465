(module
  (import "redpanda_transform" "check_abi_version_1" (func))
  (memory (export "memory") 1)
  (func (export "_start")))
