// The three jobs of the sandbox's benchmark in C: 1 echoes, 2 adds up all bytes,
// 3 reads JSON and writes it again.
__attribute__((import_module("mqrun_v1"), import_name("input"))) int input(void *, int);
__attribute__((import_module("mqrun_v1"), import_name("emit"))) int emit(const void *, int, const void *, int);

static unsigned char in[1 << 17], out[1 << 18];

#if JOB == 3
enum { NONE, NUMBER, STRING, ARRAY, OBJECT, WORD };
struct node {
  int kind, start, end, first, next, key;
};
static struct node nodes[4096];
static int used, at, size, put;

static void blank(void) {
  while (at < size && (in[at] == ' ' || in[at] == '\n' || in[at] == '\t' || in[at] == '\r')) at++;
}

static int text(int *start, int *end) {
  if (in[at] != '"') return 0;
  *start = ++at;
  while (at < size && in[at] != '"') at += in[at] == '\\' ? 2 : 1;
  *end = at++;
  return 1;
}

static int value(void) {
  blank();
  if (at >= size || used >= 4096) return 0;
  int self = used++;
  struct node *n = &nodes[self];
  n->kind = NONE, n->first = n->next = n->key = 0;
  unsigned char c = in[at];
  if (c == '"') {
    n->kind = STRING;
    text(&n->start, &n->end);
  } else if (c == '{' || c == '[') {
    n->kind = c == '{' ? OBJECT : ARRAY;
    at++;
    int last = 0;
    for (;;) {
      blank();
      if (in[at] == '}' || in[at] == ']') break;
      int key = 0;
      if (c == '{') {
        key = used++;
        nodes[key].kind = STRING;
        if (!text(&nodes[key].start, &nodes[key].end)) return 0;
        blank();
        if (in[at++] != ':') return 0;
      }
      int child = value();
      if (!child) return 0;
      nodes[child].key = key;
      if (last) nodes[last].next = child;
      else n->first = child;
      last = child;
      blank();
      if (in[at] != ',') break;
      at++;
    }
    at++;
  } else {
    n->kind = (c == '-' || (c >= '0' && c <= '9')) ? NUMBER : WORD;
    n->start = at;
    while (at < size && in[at] != ',' && in[at] != '}' && in[at] != ']' && in[at] > ' ') at++;
    n->end = at;
  }
  return self;
}

static void copy(int start, int end) {
  while (start < end) out[put++] = in[start++];
}

static void quoted(int n) {
  out[put++] = '"';
  copy(nodes[n].start, nodes[n].end);
  out[put++] = '"';
}

static void write(int i) {
  struct node *n = &nodes[i];
  switch (n->kind) {
  case STRING: quoted(i); return;
  case ARRAY:
  case OBJECT:
    out[put++] = n->kind == ARRAY ? '[' : '{';
    for (int c = n->first; c; c = nodes[c].next) {
      if (c != n->first) out[put++] = ',';
      if (nodes[c].key) {
        quoted(nodes[c].key);
        out[put++] = ':';
      }
      write(c);
    }
    out[put++] = n->kind == ARRAY ? ']' : '}';
    return;
  default: copy(n->start, n->end);
  }
}
#endif

__attribute__((export_name("mq_handle"))) int handle(int n) {
  if (n > (int)sizeof in) return 2;
  input(in, n);
#if JOB == 1
  return emit(0, 0, in, n) ? 1 : 0;
#elif JOB == 2
  unsigned sum = 0;
  for (int i = 0; i < n; i++) sum = sum * 31 + in[i];
  return emit(0, 0, &sum, 4) ? 1 : 0;
#else
  used = 1, at = put = 0, size = n;
  int root = value();
  if (!root) return 2;
  write(root);
  return emit(0, 0, out, put) ? 1 : 0;
#endif
}
