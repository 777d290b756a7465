// The jobs of the benchmark: echo, sums of bytes, JSON. Built with:
// clang --target=wasm32 -O2 -nostdlib -mbulk-memory -Wl,--no-entry -Wl,-z,stack-size=65536 jobs.c -o jobs.wasm
#define IMPORT(name) __attribute__((import_module("env"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))
IMPORT("input") int input(char *buf, int cap);
IMPORT("emit") int emit(const char *buf, int len);

static char buf[1 << 20], out[1 << 20];

EXPORT("echo") int echo(int n) {
  int len = input(buf, sizeof buf);
  return emit(buf, len);
}

EXPORT("sum") int sum(int n) {
  int len = input(buf, sizeof buf);
  unsigned s = 0;
#pragma clang loop vectorize(disable) unroll(disable)
  for (int i = 0; i < len; i++) s += (unsigned char)buf[i];
  return s;
}

EXPORT("sum4") int sum4(int n) {
  int len = input(buf, sizeof buf);
  unsigned s = 0;
  for (int i = 0; i < len; i++) s += (unsigned char)buf[i];
  return s;
}

EXPORT("fnv") int fnv(int n) {
  int len = input(buf, sizeof buf);
  unsigned h = 2166136261u;
  for (int i = 0; i < len; i++) h = (h ^ (unsigned char)buf[i]) * 16777619u;
  return h;
}

// A JSON document is parsed into nodes and written again without white space.
struct node { int kind, from, to, next, child; double num; };
static struct node nodes[1 << 14];
static int used, at, end;

static void space(void) { while (at < end && (buf[at] == ' ' || buf[at] == '\n' || buf[at] == '\t' || buf[at] == '\r')) at++; }

static int value(int depth) {
  if (depth > 64 || used >= 1 << 14) return -1;
  space();
  if (at >= end) return -1;
  int n = used++;
  struct node *v = &nodes[n];
  v->next = v->child = -1;
  char c = buf[at];
  if (c == '{' || c == '[') {
    v->kind = c;
    at++;
    int last = -1;
    for (;;) {
      space();
      if (at >= end) return -1;
      if (buf[at] == '}' || buf[at] == ']') { at++; return n; }
      if (buf[at] == ',' || buf[at] == ':') { at++; continue; }
      int k = value(depth + 1);
      if (k < 0) return -1;
      if (last < 0) v->child = k; else nodes[last].next = k;
      last = k;
    }
  }
  if (c == '"') {
    v->kind = '"';
    v->from = ++at;
    while (at < end && buf[at] != '"') at += buf[at] == '\\' ? 2 : 1;
    v->to = at++;
    return n;
  }
  v->kind = '0';
  v->from = at;
  double x = 0;
  while (at < end && buf[at] != ',' && buf[at] != '}' && buf[at] != ']' && buf[at] > ' ') {
    if (buf[at] >= '0' && buf[at] <= '9') x = x * 10 + (buf[at] - '0');
    at++;
  }
  v->num = x;
  v->to = at;
  return n;
}

static int len;
static void put(char c) { out[len++] = c; }
static void copy(int from, int to) { for (int i = from; i < to; i++) out[len++] = buf[i]; }

static void write(int n) {
  struct node *v = &nodes[n];
  if (v->kind == '{' || v->kind == '[') {
    put(v->kind);
    int k = 0;
    for (int c = v->child; c >= 0; c = nodes[c].next, k++) {
      if (k) put(v->kind == '{' && (k & 1) ? ':' : ',');
      write(c);
    }
    put(v->kind == '{' ? '}' : ']');
    return;
  }
  if (v->kind == '"') put('"');
  copy(v->from, v->to);
  if (v->kind == '"') put('"');
}

EXPORT("json") int json(int n) {
  end = input(buf, sizeof buf);
  used = at = len = 0;
  int v = value(0);
  if (v < 0) return -1;
  write(v);
  return emit(out, len);
}
