;; Runs the steps that its input lists, so that a test can make any host call
;; with any arguments. Input: the number of steps, then eight words a step: an
;; operation and its arguments. The last step's result is the verdict. Strings
;; lie in the input too, which is copied to address 0.
(module
  (import "mqrun_v1" "input" (func $input (param i32 i32) (result i32)))
  (import "mqrun_v1" "meta" (func $meta (param i32 i32 i32) (result i32)))
  (import "mqrun_v1" "header" (func $header (param i32 i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "headers" (func $headers (param i32 i32) (result i32)))
  (import "mqrun_v1" "config" (func $config (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "emit" (func $emit (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "emit_header" (func $emit_header (param i32 i32 i32 i32) (result i32)))
  (import "mqrun_v1" "meta_i64" (func $meta_i64 (param i32) (result i64)))
  (import "mqrun_v1" "reason" (func $reason (param i32 i32)))
  (import "mqrun_v1" "retry_after" (func $retry_after (param i32)))
  (import "mqrun_v1" "log" (func $log (param i32 i32 i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fd_fdstat_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $sched_yield (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 4)
  (table $t 1 funcref)
  (global $calls (mut i32) (i32.const 0))
  ;; $0 to $5 are the arguments of the step at $pc.
  (global $pc (mut i32) (i32.const 4))
  (func $0 (result i32) (i32.load offset=4 (global.get $pc)))
  (func $1 (result i32) (i32.load offset=8 (global.get $pc)))
  (func $2 (result i32) (i32.load offset=12 (global.get $pc)))
  (func $3 (result i32) (i32.load offset=16 (global.get $pc)))
  (func $4 (result i32) (i32.load offset=20 (global.get $pc)))
  (func $5 (result i32) (i32.load offset=24 (global.get $pc)))
  (func $recurse (param i32) (result i32)
    (i32.add (i32.const 1) (call $recurse (i32.add (local.get 0) (i32.const 1)))))
  (func $spin (loop $l (br $l)))
  (func $trap (unreachable))
  (func $step (param $r i32) (result i32)
    (block $count (block $recurse (block $spin (block $trap (block $fill (block $table_grow (block $size
    (block $grow (block $save (block $store (block $const (block $proc_exit (block $clock_time_get
    (block $sched_yield (block $fd_fdstat_get (block $fd_read (block $environ_sizes_get (block $args_get
    (block $args_sizes_get (block $poll_oneoff (block $random_get (block $fd_write (block $log
    (block $retry_after (block $reason (block $meta_i64 (block $emit_header (block $emit (block $config
    (block $headers (block $header (block $meta (block $input
      (br_table $input $meta $header $headers $config $emit $emit_header $meta_i64 $reason $retry_after $log
        $fd_write $random_get $poll_oneoff $args_sizes_get $args_get $environ_sizes_get $fd_read $fd_fdstat_get
        $sched_yield $clock_time_get $proc_exit $const $store $save $grow $size $table_grow $fill $trap
        $spin $recurse $count $input (i32.load (global.get $pc))))
      (local.set $r (call $input (call $0) (call $1))) (return (local.get $r))) ;; 0 input
      (local.set $r (call $meta (call $0) (call $1) (call $2))) (return (local.get $r))) ;; 1 meta
      (local.set $r (call $header (call $0) (call $1) (call $2) (call $3) (call $4))) (return (local.get $r))) ;; 2 header
      (local.set $r (call $headers (call $0) (call $1))) (return (local.get $r))) ;; 3 headers
      (local.set $r (call $config (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 4 config
      (local.set $r (call $emit (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 5 emit
      (local.set $r (call $emit_header (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 6 emit_header
      (i64.store (call $1) (call $meta_i64 (call $0))) (return (local.get $r))) ;; 7 meta_i64
      (call $reason (call $0) (call $1)) (return (local.get $r))) ;; 8 reason
      (call $retry_after (call $0)) (return (local.get $r))) ;; 9 retry_after
      (call $log (call $0) (call $1) (call $2)) (return (local.get $r))) ;; 10 log
      (local.set $r (call $fd_write (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 11 fd_write
      (local.set $r (call $random_get (call $0) (call $1))) (return (local.get $r))) ;; 12 random_get
      (local.set $r (call $poll_oneoff (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 13 poll_oneoff
      (local.set $r (call $args_sizes_get (call $0) (call $1))) (return (local.get $r))) ;; 14 args_sizes_get
      (local.set $r (call $args_get (call $0) (call $1))) (return (local.get $r))) ;; 15 args_get
      (local.set $r (call $environ_sizes_get (call $0) (call $1))) (return (local.get $r))) ;; 16 environ_sizes_get
      (local.set $r (call $fd_read (call $0) (call $1) (call $2) (call $3))) (return (local.get $r))) ;; 17 fd_read
      (local.set $r (call $fd_fdstat_get (call $0) (call $1))) (return (local.get $r))) ;; 18 fd_fdstat_get
      (local.set $r (call $sched_yield )) (return (local.get $r))) ;; 19 sched_yield
      (local.set $r (call $clock_time_get (call $0) (i64.const 0) (call $1))) (return (local.get $r))) ;; 20 clock_time_get
      (call $proc_exit (call $0)) (return (local.get $r))) ;; 21 proc_exit
      (local.set $r (call $0)) (return (local.get $r))) ;; 22 const
      (i32.store (call $0) (call $1)) (return (local.get $r))) ;; 23 store
      (i32.store (call $0) (local.get $r)) (return (local.get $r))) ;; 24 save
      (local.set $r (memory.grow (call $0))) (return (local.get $r))) ;; 25 grow
      (local.set $r (memory.size)) (return (local.get $r))) ;; 26 size
      (local.set $r (table.grow $t (ref.null func) (call $0))) (return (local.get $r))) ;; 27 table_grow
      (memory.fill (call $0) (call $1) (call $2)) (return (local.get $r))) ;; 28 fill
      (call $trap) (return (local.get $r))) ;; 29 trap
      (call $spin) (return (local.get $r))) ;; 30 spin
      (local.set $r (call $recurse (i32.const 0))) (return (local.get $r))) ;; 31 recurse
      (global.set $calls (i32.add (global.get $calls) (i32.const 1))) (local.set $r (global.get $calls)) (return (local.get $r)) ;; 32 count
  )
  (func (export "mq_handle") (param $size i32) (result i32)
    (local $n i32) (local $r i32)
    (if (i32.gt_u (local.get $size) (i32.const 131072)) (then (return (i32.const 0))))
    (drop (call $input (i32.const 0) (local.get $size)))
    (local.set $n (i32.load (i32.const 0)))
    (global.set $pc (i32.const 4))
    (loop $next
      (if (i32.eqz (local.get $n)) (then (return (local.get $r))))
      (local.set $r (call $step (local.get $r)))
      (global.set $pc (i32.add (global.get $pc) (i32.const 32)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br $next))
    (unreachable)))
