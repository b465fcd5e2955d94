/* tests/unit/test_examples.c - the examples of docs/protocol.md that need no server, and their comparison. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "coordinator/tasks/encode.h"
#include "protocol/reply.h"
#include "tests/support/examples.h"
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>

#define DEMO "demo/lockstep-stories"

static const struct protocol_model model = {.name = "lockstep-stories", .vocab = 2048, .n_eos = 1, .eos = {1}};
static struct examples examples;
static struct tokenizer *tokenizer;
static struct chat_template *chat;

static int open_all(void **state)
{
    (void)state;
    struct err e = {0};
    examples_read(&examples, "docs/protocol.md");
    char why[200];
    if (chat_template_open(&chat, DEMO, NULL, why, sizeof why, &e) != 0)
        return -1;
    return tokenizer_open(&tokenizer, DEMO, &e);
}

static int close_all(void **state)
{
    (void)state;
    examples_free(&examples);
    tokenizer_close(&tokenizer);
    chat_template_close(&chat);
    return 0;
}

/* Converts all prompts to ids; those of the last prompt stay in *ids. */
static int encode_all(const struct protocol_generate *g, struct token_list *ids, struct protocol_error *error)
{
    for (int i = 0; i < g->n_prompts; i++) {
        ids->n = 0;
        if (encode_request(g, i, tokenizer, chat, model.vocab, 0, ids, error) != 0)
            return -1;
    }
    return 0;
}

static char *detokenized(const struct protocol_message *m, size_t *bytes)
{
    char *text = NULL;
    size_t text_bytes = 0;
    struct err e = {0};
    assert_int_equal(tokenizer_decode(tokenizer, m->ids.id, m->ids.n, m->skip_special_tokens, &text, &text_bytes, &e),
                     0);
    char *reply = reply_detokenize(m->request_id, text, text_bytes, bytes);
    free(text);
    return reply;
}

/* Returns a server's answer if it needs no model; NULL: it does. */
static char *answer(const char *json)
{
    struct protocol_message m;
    struct protocol_error error;
    struct token_list ids = {0};
    size_t bytes = 0;
    char *reply = NULL;
    int rc = protocol_parse(&m, json, strlen(json), &model, true, &error);
    if (rc == 0 && (m.op == PROTOCOL_GENERATE || m.op == PROTOCOL_TOKENIZE))
        rc = encode_all(&m.generate, &ids, &error);
    if (rc == 0 && m.op == PROTOCOL_CANCEL) /* no request runs here */
        rc = protocol_fail(&error, PROTOCOL_NOT_FOUND, "request_id", "no such request");
    if (rc != 0)
        reply = reply_error(m.request_id, &error, &bytes);
    else if (m.op == PROTOCOL_TOKENIZE)
        reply = reply_tokenize(m.request_id, ids.id, ids.n, tokenizer, m.generate.return_token_strings, 1024, &bytes);
    else if (m.op == PROTOCOL_DETOKENIZE)
        reply = detokenized(&m, &bytes);
    token_list_free(&ids);
    protocol_message_close(&m);
    return reply;
}

static void answers_as_the_document_says(void **state)
{
    (void)state;
    int n_checked = 0, n_for_the_model = 0;
    for (int i = 0; i < examples.n; i++) {
        struct example *x = &examples.example[i];
        char *reply = answer(x->request_text), why[900];
        bool fails = strcmp(json_string_value(json_object_get(x->reply[x->n_replies - 1], "status")), "error") == 0;
        if (reply == NULL) {
            if (fails)
                print_error("%s: accepted\n", x->name);
            assert_false(fails);
            n_for_the_model++;
            continue;
        }
        json_t *found = json_loads(reply, 0, NULL);
        assert_non_null(found);
        bool same = example_compare(found, x->reply[0], why, sizeof why);
        if (!same)
            print_error("%s: %s\n", x->name, why);
        assert_true(same);
        json_decref(found);
        free(reply);
        n_checked++;
    }
    assert_true(n_checked >= 16);
    assert_true(n_for_the_model >= 13);
}

static void covers_every_op(void **state)
{
    (void)state;
    for (enum protocol_op op = PROTOCOL_GENERATE; op < PROTOCOL_SHUTDOWN; op++) { /* SHUTDOWN would end the server */
        bool found = op == PROTOCOL_GENERATE;
        for (int i = 0; i < examples.n; i++) {
            const char *name = json_string_value(json_object_get(examples.example[i].request, "op"));
            found |= name != NULL && strcmp(name, protocol_op_name(op)) == 0;
        }
        if (!found)
            print_error("no example of %s\n", protocol_op_name(op));
        assert_true(found);
    }
}

static void compares(void **state)
{
    (void)state;
    static const struct {
        const char *found, *expected, *why; /* "": equal */
    } cases[] = {
        {"{\"a\": 1, \"b\": 2}", "{\"a\": 1.0}", ""},
        {"{\"a\": 1}", "{\"a\": 1, \"b\": 2}", ".b: found nothing, expected 2"},
        {"{\"a\": 1}", "{\"b\": \"...\"}", ".b: found nothing, expected \"...\""},
        {"{\"a\": null}", "{\"a\": \"...\"}", ""},
        {"{\"a\": [1, 2, 3]}", "{\"a\": [1, \"...\"]}", ""},
        {"{\"a\": [1]}", "{\"a\": [1, \"...\"]}", ""},
        {"{\"a\": []}", "{\"a\": [1, \"...\"]}", ".a: found [], expected [1,\"...\"]"},
        {"{\"a\": [1, 2, 3]}", "{\"a\": [\"...\", \"...\"]}", ".a: found [1,2,3], expected [\"...\",\"...\"]"},
        {"{\"a\": [1, 2]}", "{\"a\": [1, {\"x\": 1}]}", ".a[1]: found 2, expected {\"x\":1}"},
        {"{\"a\": {\"b\": [{\"c\": \"x\"}]}}", "{\"a\": {\"b\": [{\"c\": \"y\"}]}}",
         ".a.b[0].c: found \"x\", expected \"y\""},
        {"{\"a\": true}", "{\"a\": 1}", ".a: found true, expected 1"},
        {"[1]", "{}", "reply: found [1], expected {}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char why[300];
        json_t *found = json_loads(cases[i].found, 0, NULL), *expected = json_loads(cases[i].expected, 0, NULL);
        assert_int_equal(example_compare(found, expected, why, sizeof why), cases[i].why[0] == '\0');
        assert_string_equal(why, cases[i].why);
        json_decref(found);
        json_decref(expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_the_document_says),
        cmocka_unit_test(covers_every_op),
        cmocka_unit_test(compares),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
