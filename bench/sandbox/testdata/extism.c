// The jobs of the sandbox's benchmark as an Extism plugin: `echo` and `sum`.
typedef unsigned long long u64;
#define EXTISM(name) __attribute__((import_module("extism:host/env"), import_name(#name)))
EXTISM(input_length) u64 input_length(void);
EXTISM(input_load_u64) u64 input_load_u64(u64);
EXTISM(input_load_u8) unsigned input_load_u8(u64);
EXTISM(alloc) u64 alloc(u64);
EXTISM(store_u64) void store_u64(u64, u64);
EXTISM(store_u8) void store_u8(u64, unsigned);
EXTISM(output_set) void output_set(u64, u64);

static unsigned char buf[1 << 17];

static u64 input(void) {
  u64 n = input_length(), i = 0;
  for (; i + 8 <= n; i += 8) *(u64 *)(buf + i) = input_load_u64(i);
  for (; i < n; i++) buf[i] = input_load_u8(i);
  return n;
}

static void output(const unsigned char *b, u64 n) {
  u64 at = alloc(n), i = 0;
  for (; i + 8 <= n; i += 8) store_u64(at + i, *(u64 *)(b + i));
  for (; i < n; i++) store_u8(at + i, b[i]);
  output_set(at, n);
}

__attribute__((export_name("echo"))) int echo(void) {
  output(buf, input());
  return 0;
}

__attribute__((export_name("sum"))) int sum(void) {
  u64 n = input();
  unsigned s = 0;
  for (u64 i = 0; i < n; i++) s = s * 31 + buf[i];
  output((unsigned char *)&s, 4);
  return 0;
}
