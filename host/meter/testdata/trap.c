// Built with: clang --target=wasm32 -g -O1 -nostdlib -mbulk-memory -Wl,--no-entry -fdebug-prefix-map=$PWD=. trap.c -o trap.wasm
#define EXPORT(name) __attribute__((export_name(name)))
static volatile int sink;

static int divide(int a, int b) {
  for (int i = 0; i < 3; i++) sink += i;
  return a / b;
}

__attribute__((noinline)) static int middle(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    sink = i;
    sum += divide(100, n - 1 - i);
  }
  return sum;
}

EXPORT("run") int run(int n) {
  sink = n;
  return middle(n) + 1;
}

EXPORT("reach") int reach(int at) {
  return *(volatile int *)(unsigned long)at;
}
