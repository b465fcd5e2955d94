/* tests/fuzz/fuzz_form.c - libFuzzer target for forms of answers: a schema, an expression or a choice becomes a grammar
 * or is refused in one line; texts that follow its masks have the form, and those of schemas are JSON. The first byte
 * of the input selects the kind and the choice of tokens, the rest is the source. Corpus: tests/fuzz/corpus/form. */
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "text/grammar/form.h"
#include "text/tokenizer/unicode.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TOKENS 40

/* Has all single bytes, and some tokens of several bytes. */
static struct tokenizer *open_tokenizer(void)
{
    static const char *const more[] = {"ab",
                                       "abc",
                                       "\\\"",
                                       ":\"",
                                       "\",\"",
                                       "{\"",
                                       "\"}",
                                       "true",
                                       "null",
                                       "12",
                                       "\xc4\xa0"
                                       "a",
                                       "0."};
    json_t *vocab = json_object();
    struct tokenizer *t = NULL;
    struct err e = {0};
    char token[8];
    for (int byte = 0; byte < 256; byte++) {
        token[utf8_put(token, unicode_byte_to_char(byte))] = '\0';
        json_object_set_new(vocab, token, json_integer(byte));
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        json_object_set_new(vocab, more[i], json_integer(256 + (json_int_t)i));
    json_t *file = json_pack("{s:{s:s, s:o, s:[]}, s:{s:s}}", "model", "type", "BPE", "vocab", vocab, "merges",
                             "decoder", "type", "ByteLevel");
    char *text = json_dumps(file, 0);
    must(text != NULL && tokenizer_open_memory(&t, text, strlen(text), "fuzz", &e) == 0);
    free(text);
    json_decref(file);
    return t;
}

/* Returns the first token of the mask at or after one that the seed selects. */
static int32_t choose_token(const uint32_t *mask, int32_t n, uint64_t seed)
{
    for (int32_t k = 0, id = (int32_t)(seed % (uint64_t)n); k < n; k++, id = (id + 1) % n)
        if (mask[id / 32] >> id % 32 & 1)
            return id;
    abort();
}

static void check_text(const struct form *form, const struct text_buffer *text)
{
    struct err e = {0};
    json_error_t where;
    must(machine_matches(&form->grammar.graph, form->grammar.start, text->data != NULL ? text->data : "", text->bytes,
                         &e));
    if (form->kind == FORM_CALLS) /* its text may contain special tokens */
        return;
    must(utf8_invalid_at(text->data != NULL ? text->data : "", text->bytes) == text->bytes);
    if (form->kind != FORM_SCHEMA && form->kind != FORM_OBJECT)
        return;
    json_t *value =
        json_loadb(text->data, text->bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &where);
    must(value != NULL);
    json_decref(value);
}

/* An attempt with tokens that may be forbidden leaves the state unchanged. */
static void attempt(struct grammar_run *run, int32_t n, uint64_t seed)
{
    struct err why = {0};
    uint32_t mask[16];
    grammar_run_try(run);
    for (int i = 0; i < 4 && grammar_run_mask(run, NULL, 0, mask, &why) == 0 &&
                    grammar_run_goes_on(run, i < 3 ? choose_token(mask, n, seed) : (int32_t)(seed % (uint64_t)n));
         i++)
        seed /= 3;
    grammar_run_return(run);
}

static void follow(const struct form *form, const struct lexicon *lexicon, uint64_t seed)
{
    struct grammar_run run;
    struct text_buffer text = {0};
    struct err e = {0};
    uint32_t mask[16];
    must(grammar_run_open(&run, &form->grammar, lexicon, &e) == 0);
    for (int i = 0; i < MOST_TOKENS && grammar_run_mask(&run, NULL, 0, mask, &e) == 0; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        int32_t id = choose_token(mask, lexicon->n_tokens, seed >> 33);
        attempt(&run, lexicon->n_tokens, seed >> 23);
        size_t n;
        const unsigned char *bytes = lexicon_bytes(lexicon, id, &n);
        must(text_append(&text, (const char *)bytes, n, &e) == 0);
        if (grammar_run_take(&run, id, &e) != 0)
            break; /* too many ways to continue */
        if (run.machine->state[run.now.state].complete)
            check_text(form, &text);
        if (grammar_run_ended(&run))
            break;
    }
    must(e.code == ERR_NONE || e.code == ERR_UNSUPPORTED || e.code == ERR_INPUT);
    text_free(&text);
    grammar_run_close(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer;
    static struct lexicon lexicon;
    struct form *form;
    struct err e = {0};
    if (size == 0)
        return 0;
    if (tokenizer == NULL) {
        tokenizer = open_tokenizer();
        must(lexicon_open(&lexicon, tokenizer, tokenizer_vocab_size(tokenizer), &e) == 0);
    }
    enum form_kind kind = (enum form_kind)(1 + data[0] % (FORM_KINDS - 1));
    if (form_open_text(&form, kind, (const char *)data + 1, size - 1, &e) != 0) {
        must(e.code == ERR_INPUT || e.code == ERR_UNSUPPORTED);
        must(e.text[0] != '\0' && strchr(e.text, '\n') == NULL);
        return 0;
    }
    follow(form, &lexicon, data[0]);
    form_close(form);
    return 0;
}
