/* tests/fuzz/fuzz_tool_calls.c - libFuzzer target for the parsing of a model's answer: the first byte selects the
 * format of calls, the second the place where the rest, the text, is split. clang -fsanitize=fuzzer,address,undefined
 * ... ; corpus: tests/fuzz/corpus/tool_calls, words: tests/fuzz/tool_calls.dict. Besides memory safety: the parts do
 * not depend on the split, calls are reported in order, their names are UTF-8 of bounded length, and all parts together
 * are no longer than the text, except for the braces of calls without arguments. */
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "text/calls/call_json.h"
#include "text/calls/calls.h"

#include <string.h>

struct seen_calls {
    uint64_t hash[4]; /* of each kind of part */
    size_t bytes;
    int n_calls;
};

static void see(void *context, enum calls_part part, int call, const char *text, size_t bytes)
{
    struct seen_calls *s = context;
    must(bytes > 0);
    if (part == CALLS_NAME) {
        must(call == s->n_calls++ && bytes <= CALL_NAME_BYTES);
        s->hash[CALLS_ARGUMENTS] = s->hash[CALLS_ARGUMENTS] * 31 + 1; /* separates the arguments of consecutive calls */
    }
    must(part != CALLS_ARGUMENTS || call == s->n_calls - 1);
    for (size_t i = 0; i < bytes; i++)
        s->hash[part] = (s->hash[part] ^ (unsigned char)text[i]) * 0x100000001b3u;
    s->bytes += bytes;
}

static struct seen_calls read_cut(struct calls_way way, const char *text, size_t bytes, size_t step)
{
    struct seen_calls s = {0};
    struct calls_reader *r = calls_open(way);
    const struct calls_sink sink = {see, &s};
    for (size_t i = 0; i < bytes; i += step)
        calls_read(r, text + i, bytes - i < step ? bytes - i : step, &sink);
    calls_end(r, &sink);
    must(calls_count(r) == s.n_calls);
    calls_close(r);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const struct calls_way way = {.format = data[0] % CALLS_FORMATS,
                                  .thoughts = data[0] / CALLS_FORMATS % (THOUGHTS_BEGUN + 1),
                                  .hidden = data[0] >= 128};
    const char *text = (const char *)data + 2;
    size_t bytes = size - 2;
    struct seen_calls whole = read_cut(way, text, bytes, bytes + 1), cut = read_cut(way, text, bytes, 1 + data[1] % 32);
    must(memcmp(whole.hash, cut.hash, sizeof whole.hash) == 0 && whole.n_calls == cut.n_calls);
    must(whole.bytes == cut.bytes && whole.bytes <= bytes + 2 * (size_t)whole.n_calls);
    must(calls_format_of(text, bytes) < CALLS_FORMATS);
    must(!calls_begins_thought(text, bytes) || bytes >= 7);
    (void)calls_thinks(text, bytes);
    return 0;
}
