/* tests/unit/test_chat_families.c - chats in the formats of harmony, Qwen3 and Gemma 3, with tools, thoughts and
 * several turns: the text and the token ids are those of transformers' apply_chat_template. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "coordinator/tasks/encode.h"
#include "tests/support/chat_family.h"
#include "tests/support/files.h"
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>

static struct chat_request request_of(const json_t *c)
{
    return (struct chat_request){.messages = json_object_get(c, "messages"),
                                 .tools = json_object_get(c, "tools"),
                                 .variables = json_object_get(c, "variables"),
                                 .add_generation_prompt = json_is_true(json_object_get(c, "add_generation_prompt"))};
}

static char *join(const struct jinja_text *text)
{
    size_t bytes = 0, at = 0;
    for (size_t i = 0; i < text->n; i++)
        bytes += text->piece[i].bytes;
    char *joined = calloc(bytes + 1, 1);
    assert_non_null(joined);
    for (size_t i = 0; i < text->n; at += text->piece[i++].bytes)
        memcpy(joined + at, text->piece[i].text, text->piece[i].bytes);
    return joined;
}

/* A null marks a chat that transformers refuses, too. */
static void check_text(const struct chat_template *chat, const json_t *c)
{
    const char *want = json_string_value(json_object_get(c, "rendered"));
    const struct chat_request request = request_of(c);
    struct jinja_text text = {0};
    struct protocol_error error = {0};
    assert_int_equal(chat_render(chat, &request, &text, &error), want == NULL ? -1 : 0);
    if (want == NULL)
        return;
    char *got = join(&text);
    assert_string_equal(got, want);
    free(got);
    jinja_text_free(&text);
}

static void check_ids(const struct chat_template *chat, const struct tokenizer *t, const json_t *c)
{
    const json_t *want = json_object_get(c, "ids");
    const struct protocol_generate g = {.n_prompts = 1, .chat = request_of(c)};
    struct protocol_error error = {0};
    struct token_list ids = {0};
    int rc = encode_request(&g, 0, t, chat, tokenizer_vocab_size(t), -1, &ids, &error);
    assert_int_equal(rc, json_is_null(want) ? -1 : 0);
    assert_int_equal(ids.n, json_array_size(want));
    for (size_t i = 0; i < ids.n; i++)
        assert_int_equal(ids.id[i], json_integer_value(json_array_get(want, i)));
    token_list_free(&ids);
}

static struct tokenizer *open_tokenizer(const char *dir)
{
    struct tokenizer *t = NULL;
    struct err e = {0};
    size_t bytes = 0;
    char *text = files_read(dir, "tokenizer.json", &bytes);
    assert_int_equal(tokenizer_open_memory(&t, text, bytes, "tokenizer.json", &e), 0);
    free(text);
    return t;
}

/* Checks the format for parsing its answers. */
static void check_form(const struct chat_template *chat, const char *name)
{
    bool harmony = strcmp(name, "gptoss") == 0, qwen = strcmp(name, "qwen3") == 0;
    assert_int_equal(chat_template_calls(chat, true), harmony ? CALLS_HARMONY : qwen ? CALLS_HERMES : CALLS_NONE);
    assert_int_equal(chat_template_thinks(chat, false), qwen);
}

/* Gemma's template iterates over the parts of a content, and writes their texts one after the other. */
static void check_parts(const struct chat_template *chat, bool taken)
{
    struct jinja_text text = {0};
    struct protocol_error error = {0};
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "once\nupon"),
           *parts =
               json_pack("[[{s:s, s:s}, {s:s, s:s}]]", "type", "text", "text", "once", "type", "text", "text", "upon");
    const struct chat_request request = {.messages = messages, .parts = parts, .add_generation_prompt = true};
    assert_int_equal(chat_render(chat, &request, &text, &error), 0);
    char *got = join(&text);
    assert_non_null(strstr(got, taken ? "onceupon" : "once\nupon"));
    free(got);
    jinja_text_free(&text);
    json_decref(messages);
    json_decref(parts);
}

static int check_family(const json_t *family)
{
    struct chat_template *chat = NULL;
    struct err e = {0};
    char dir[256], why[200];
    size_t i;
    const json_t *c, *cases = json_object_get(family, "cases");
    files_make_dir(dir);
    chat_family_write(family, dir);
    assert_int_equal(chat_template_open(&chat, dir, NULL, why, sizeof why, &e), 0);
    assert_string_equal(why, "");
    struct tokenizer *t = open_tokenizer(dir);
    check_form(chat, json_string_value(json_object_get(family, "name")));
    check_parts(chat, strcmp(json_string_value(json_object_get(family, "name")), "gemma3") == 0);
    json_array_foreach(cases, i, c)
    {
        check_text(chat, c);
        check_ids(chat, t, c);
    }
    tokenizer_close(&t);
    chat_template_close(&chat);
    files_remove_dir(dir);
    return (int)json_array_size(cases);
}

static void are_as_transformers(void **state)
{
    (void)state;
    size_t i;
    int n = 0;
    json_t *families = chat_families();
    const json_t *family;
    json_array_foreach(families, i, family)
    {
        n += check_family(family);
    }
    assert_int_equal(i, 3);
    assert_true(n >= 35);
    json_decref(families);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_as_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
