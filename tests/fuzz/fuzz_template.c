/* tests/fuzz/fuzz_template.c - libFuzzer target for chat templates, rendered for a chat; the text after a NUL is the
 * user's message. clang -fsanitize=fuzzer,address,undefined ... ; corpus: tests/fuzz/corpus/template, words:
 * tests/fuzz/template.dict. Besides memory safety and limits: a refusal is one line that names the template, the
 * output is UTF-8, and a user's words are marked as foreign unless the template itself contains them. */
#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "text/template/jinja.h"

#include <string.h>

static json_t *request(const char *words, size_t bytes)
{
    json_t *said = json_stringn(words, bytes);
    if (said == NULL)
        said = json_string("\x07 words");
    return json_pack("{s:[{s:s, s:O}, {s:s, s:s, s:[{s:{s:s, s:{s:i, s:[b, n, f]}}}]}], s:[{s:s, s:O}], s:b, s:o}",
                     "messages", "role", "user", "content", said, "role", "assistant", "content", "\x07", "tool_calls",
                     "function", "name", "\x07", "arguments", "\x07", 1, "\x07\x07", 1, 1.5, "tools", "name", "\x07",
                     "what", said, "add_generation_prompt", 1, "x", said);
}

static void check_text(const struct jinja_text *t, bool names_bell)
{
    for (size_t i = 0; i < t->n; i++) {
        must(t->piece[i].bytes > 0 && (i == 0 || t->piece[i].foreign != t->piece[i - 1].foreign));
        if (!names_bell && !t->piece[i].foreign)
            must(memchr(t->piece[i].text, '\x07', t->piece[i].bytes) == NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jinja *t = NULL;
    struct jinja_text text = {0};
    struct err e = {0};
    const char *source = (const char *)data, *end = memchr(data, '\0', size);
    size_t bytes = end != NULL ? (size_t)(end - source) : size;
    if (jinja_open(&t, "fuzz", source, bytes, &e) == 0) {
        json_t *v = request(end != NULL ? end + 1 : "a", end != NULL ? size - bytes - 1 : 1);
        struct jinja_variables variables = {.request = v, .now = 1700000000};
        if (jinja_render(t, &variables, &text, &e) == 0)
            check_text(&text, memchr(source, '\x07', bytes) != NULL || memchr(source, '\\', bytes) != NULL);
        json_decref(v);
    }
    must((e.code == ERR_NONE) == (t != NULL && e.text[0] == '\0'));
    must(e.code == ERR_NONE || strncmp(e.text, "fuzz: line ", 11) == 0);
    must(strchr(e.text, '\n') == NULL);
    jinja_text_free(&text);
    jinja_close(&t);
    return 0;
}
