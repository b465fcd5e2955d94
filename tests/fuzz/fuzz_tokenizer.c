/* tests/fuzz/fuzz_tokenizer.c - libFuzzer target for tokenizer.json, followed by some encoding and decoding with it.
 * clang -fsanitize=fuzzer,address,undefined ... ; corpus: tests/fuzz/corpus/tokenizer. Besides memory safety: a refusal
 * has a message, and every id that encoding yields is in the vocabulary. */
#include "base/err.h"
#include "tests/fuzz/fuzz.h"
#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static void decode(const struct tokenizer *t, const int32_t *id, size_t n, bool skip)
{
    struct detokenizer *d = NULL;
    struct err e = {0};
    char *text = NULL;
    const char *part;
    size_t bytes = 0, part_bytes = 0;
    if (tokenizer_decode(t, id, n, skip, &text, &bytes, &e) == 0)
        must(text[bytes] == '\0');
    free(text);
    e = (struct err){0};
    if (detokenizer_open(&d, t, skip, &e) != 0)
        return;
    for (size_t i = 0; i < n; i++)
        if (detokenizer_push(d, id[i], &part, &part_bytes, &e) != 0)
            break;
    (void)detokenizer_finish(d, &part, &part_bytes, &e);
    detokenizer_close(&d);
}

static void encode(const struct tokenizer *t, const char *text, size_t bytes, unsigned flags)
{
    struct token_list ids = {0};
    struct err e = {0};
    if (tokenizer_encode(t, text, bytes, flags, &ids, &e) == 0) {
        for (size_t i = 0; i < ids.n; i++)
            must(ids.id[i] >= 0 && ids.id[i] < tokenizer_vocab_size(t));
        decode(t, ids.id, ids.n, flags & 1);
    } else {
        must(e.code != ERR_NONE && ids.n == 0);
    }
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "<s> Hello, \xc3\xa9\xcc\x81\xcc\x96 w\xc3\xb6rld's  123\n\n<|a|> \xe4\xbd\xa0\xf0\x9f\x98\x80\0 ab";
    static const int32_t ids[] = {0, 1, 2, 3, -1, 5, 8, 13, 21, 34, 55, 89, 7, 7, 7, 1 << 30, 250, 300};
    struct tokenizer *t = NULL;
    struct err e = {0};
    if (tokenizer_open_memory(&t, (const char *)data, size, "fuzz", &e) != 0) {
        must(e.code != ERR_NONE && e.text[0] != '\0' && t == NULL);
        return 0;
    }
    for (unsigned flags = 0; flags < 4; flags++)
        encode(t, text, sizeof text - 1, flags);
    /* Encodes up to 200 bytes of the file's own text, which contains the added tokens. */
    encode(t, (const char *)data, size < 200 ? size : 200, 0);
    decode(t, ids, sizeof ids / sizeof ids[0], false);
    tokenizer_close(&t);
    return 0;
}
