/* tests/unit/test_batch_lines.c - coordinator/batch/line.c and result.c: the request in an input line, and the line of
 * its result. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "coordinator/batch/line.h"
#include "coordinator/batch/result.h"

#include <stdio.h>
#include <stdlib.h>

static const struct served served = {
    .model = {.name = "demo", .path = "/models/demo", .vocab = 1000, .n_eos = 1, .eos = {1}}};

static struct line *parse(const char *text, const char *defaults)
{
    json_t *values = defaults != NULL ? json_loads(defaults, 0, NULL) : json_object();
    const struct line_rules rules = {&served, values};
    const struct input_line from = {text, strlen(text), 0, 3, 2, 100};
    struct line *l = line_open(&from, "in.jsonl", &rules, 1, 0);
    assert_non_null(l);
    json_decref(values);
    return l;
}

static void expect_bad(const char *text, const char *id, const char *field, const char *part)
{
    struct line *l = parse(text, NULL);
    const struct protocol_error *error = &l->task->error;
    if (error->code == 0 || strcmp(error->field, field) != 0 || strstr(error->message, part) == NULL ||
        strcmp(l->id, id) != 0)
        print_error("%s\n  id %s, %d %s: %s\n", text, l->id, error->code, error->field, error->message);
    assert_true(error->code != 0);
    assert_string_equal(l->id, id);
    assert_string_equal(error->field, field);
    assert_non_null(strstr(error->message, part));
    line_close(l);
}

#define LINE(body) "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":" body "}"
#define CHAT(body) "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/chat/completions\",\"body\":" body "}"
#define TURNS      "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

static void bad_lines(void **state)
{
    (void)state;
    static const char made[] = "in.jsonl:3";
    expect_bad("", made, "", "not valid JSON");
    expect_bad("{\"prompt\":", made, "prompt", "not valid JSON");
    expect_bad("[1]", made, "", "expected an object");
    expect_bad("{\"id\":\"x\"}", "x", "prompt", "missing");
    expect_bad("{\"id\":\"\",\"prompt\":\"a\"}", made, "id", "expected a string");
    expect_bad("{\"id\":1.5,\"prompt\":\"a\"}", made, "id", "a real number");
    expect_bad("{\"id\":\"a\\u0000b\",\"prompt\":\"a\"}", made, "id", "without NUL");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"top_p\":3}", "x", "top_p", "found 3");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"sampling_params\":{\"top_p\":3}}", "x", "sampling_params.top_p",
               "found 3");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"tempreature\":3}", "x", "tempreature", "unknown");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"stream\":true}", "x", "stream", "whole results");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"op\":\"generate\"}", "x", "op", "server");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"request_id\":\"r\"}", "x", "request_id", "server");
    expect_bad("{\"id\":\"x\",\"prompt\":\"a\",\"model\":\"other\"}", "x", "model", "other");
    expect_bad(LINE("{\"prompt\":\"a\",\"top_p\":3}"), "c", "body.top_p", "found 3");
    expect_bad(LINE("{\"prompt\":\"a\",\"stream\":true}"), "c", "body.stream", "whole results");
    expect_bad(LINE("{\"prompt\":\"a\",\"tools\":[1]}"), "c", "body.tools", "only chats");
    expect_bad(LINE("{" TURNS "}"), "c", "url", "expected \"prompt\"");
    expect_bad(CHAT("{\"prompt\":\"a\"}"), "c", "url", "expected \"messages\"");
    expect_bad(LINE("7"), "c", "body", "an integer");
    expect_bad("{\"custom_id\":\"c\",\"url\":\"/v1/completions\"}", "c", "body", "nothing");
    expect_bad("{\"custom_id\":\"c\",\"body\":{\"prompt\":\"a\"}}", "c", "url", "nothing");
    expect_bad("{\"custom_id\":\"c\",\"url\":\"/v1/embeddings\",\"body\":{}}", "c", "url", "/v1/embeddings");
    expect_bad("{\"custom_id\":\"c\",\"method\":\"GET\",\"url\":\"/v1/completions\",\"body\":{}}", "c", "method",
               "GET");
    expect_bad("{\"custom_id\":\"c\",\"url\":\"/v1/completions\",\"body\":{},\"extra\":1}", "c", "extra", "unknown");
    const struct input_line too_long = {NULL, 0, 0, 3, 2, 100};
    const struct line_rules rules = {&served, NULL};
    struct line *l = line_open(&too_long, "in.jsonl", &rules, 1, 0);
    assert_int_equal(l->task->error.code, PROTOCOL_TOO_LARGE);
    assert_string_equal(l->id, made);
    line_close(l);
}

/* Until one of several models is loaded, only its name is checked. */
static void late_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *field;
    } rows[] = {{"{\"prompt\":\"a\",\"id\":\"x\",\"model\":\"demo\"}", "demo", ""},
                {LINE("{\"prompt\":\"a\",\"model\":\"/models/demo\"}"), "/models/demo", ""},
                {CHAT("{" TURNS "}"), NULL, ""},
                {"{\"prompt\":\"a\",\"top_p\":3}", NULL, "top_p"},
                {LINE("{\"prompt\":\"a\",\"top_p\":3}"), NULL, "body.top_p"},
                {LINE("{\"prompt\":\"a\",\"model\":\"other\"}"), "other", "body.model"}};
    const struct line_rules unknown = {NULL, NULL}, rules = {&served, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct input_line from = {rows[i].text, strlen(rows[i].text), 0, 3, 2, 100};
        struct line *l = line_open(&from, "in.jsonl", &unknown, 1, 0);
        assert_int_equal(l->task->error.code, 0);
        assert_true((l->model_name == NULL) == (rows[i].name == NULL));
        if (rows[i].name != NULL)
            assert_string_equal(l->model_name, rows[i].name);
        line_check(l, &rules);
        assert_string_equal(l->task->error.field, rows[i].field);
        assert_true((l->task->error.code == 0) == (rows[i].field[0] == '\0'));
        assert_int_equal(l->chat, strstr(rows[i].text, "chat") != NULL);
        line_close(l);
    }
    static const char *const bad[] = {LINE("{\"prompt\":\"a\",\"model\":7}"),
                                      LINE("{\"prompt\":\"a\",\"model\":\"demo\\u0000b\"}")};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const struct input_line from = {bad[i], strlen(bad[i]), 0, 3, 2, 100};
        struct line *l = line_open(&from, "in.jsonl", &unknown, 1, 0);
        assert_string_equal(l->task->error.field, "body.model");
        line_close(l);
    }
}

static void good_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *id;
        bool chat;
    } rows[] = {{"{\"prompt\":\"a\"}", "in.jsonl:3", false},
                {"{\"prompt\":[1,2],\"id\":\"x\",\"stream\":false}", "x", false},
                {"{\"prompt\":[\"a\",\"b\"],\"id\":-17,\"n\":2}", "-17", false},
                {"{" TURNS ",\"id\":\"x\"}", "x", true},
                {LINE("{\"prompt\":\"a\",\"model\":\"demo\"}"), "c", false},
                {LINE("{\"prompt\":\"a\",\"model\":\"/models/demo\"}"), "c", false},
                {CHAT("{" TURNS "}"), "c", true},
                {"{\"url\":\"/v1/completions\",\"body\":{\"prompt\":\"a\"}}", "in.jsonl:3", false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct line *l = parse(rows[i].text, NULL);
        if (l->task->error.code != 0)
            print_error("%s: %s: %s\n", rows[i].text, l->task->error.field, l->task->error.message);
        assert_int_equal(l->task->error.code, 0);
        assert_string_equal(l->id, rows[i].id);
        assert_int_equal(l->chat, rows[i].chat);
        line_close(l);
    }
}

static void defaults(void **state)
{
    (void)state;
    static const char values[] = "{\"temperature\":0.5,\"max_tokens\":77,\"top_k\":5,\"ignore_eos\":true}";
    struct line *l = parse("{\"prompt\":\"a\"}", values);
    const struct request_rules *r = &l->task->message.generate.rules;
    assert_int_equal(l->task->error.code, 0);
    assert_true(r->sampling.temperature == 0.5F && r->max_tokens == 77 && r->sampling.top_k == 5 && r->ignore_eos);
    line_close(l);
    l = parse("{\"prompt\":\"a\",\"temperature\":0,\"n_predict\":3,\"ignore_eos\":false}", values);
    r = &l->task->message.generate.rules;
    assert_true(r->sampling.temperature == 0 && r->max_tokens == 3 && !r->ignore_eos);
    line_close(l);
    /* a default does not contradict a line that turns sampling off */
    l = parse("{\"prompt\":\"a\",\"do_sample\":false}", values);
    assert_int_equal(l->task->error.code, 0);
    assert_true(l->task->message.generate.rules.sampling.temperature == 0);
    line_close(l);
    l = parse("{\"prompt\":\"a\",\"num_beams\":2}", values);
    assert_int_equal(l->task->error.code, 0);
    assert_true(l->task->message.generate.rules.sampling.temperature == 0);
    line_close(l);
}

static void seeds(void **state)
{
    (void)state;
    assert_true(line_seed(7, "a") == line_seed(7, "a"));
    assert_true(line_seed(7, "a") != line_seed(8, "a") && line_seed(7, "a") != line_seed(7, "b"));
    assert_true(line_seed(7, "a") < UINT64_C(1) << 53);
    assert_int_equal(line_seed(0, "request-1"), 0xad73b98307d1f); /* BLAKE2b; resumed runs rely on it */
}

/* Writes the line of a failed task in both styles, and reads its id back. */
static void expect_id_back(const char *id_json, const char *id)
{
    char text[2000], back[LINE_MAX_ID_BYTES + 1];
    (void)snprintf(text, sizeof text, "{\"prompt\":3,\"id\":%s}", id_json);
    for (int plain = 0; plain < 2; plain++) {
        const struct result_style style = {plain != 0, "demo", NULL};
        struct result_count count;
        struct line *l = parse(text, NULL);
        size_t bytes = 0;
        bool failed = false;
        char *line = result_line(l, "in.jsonl", &style, 0, &bytes, &count);
        assert_non_null(line);
        assert_int_equal(line[bytes - 1], '\n');
        assert_null(memchr(line, '\n', bytes - 1));
        assert_true(result_read(line, bytes - 1, back, &failed));
        assert_true(failed);
        assert_string_equal(back, id);
        assert_non_null(strstr(line, "in.jsonl: line 3: prompt: found an integer"));
        for (size_t cut = 0; cut + 1 < bytes;
             cut++) /* torn lines are not results, and no byte after their end is read */
            if (cut != bytes - 1) {
                char *part = malloc(cut + 1);
                memcpy(part, line, cut);
                (void)result_read(part, cut, back, &failed);
                free(part);
            }
        free(line);
        line_close(l);
    }
}

static void results(void **state)
{
    (void)state;
    char back[LINE_MAX_ID_BYTES + 1];
    bool failed = true;
    expect_id_back("\"plain\"", "plain");
    expect_id_back("\"qu\\\"ote \\\\ and \\u00e9, \\n\"", "qu\"ote \\ and \xc3\xa9, \n");
    expect_id_back("-12345", "-12345");
    static const char good[] = "{\"id\":\"x\",\"custom_id\":\"y\",\"response\":{\"status_code\":200,\"body\":{}}}";
    assert_true(result_read(good, sizeof good - 1, back, &failed));
    assert_false(failed);
    assert_string_equal(back, "y");
    static const char hole[] = "{\"id\":\"x\",\"text\":\"a\0\0\0b\"}", tab[] = "{\"id\":\"x\",\"text\":\"a\tb\"}";
    assert_false(result_read(hole, sizeof hole - 1, back, &failed));
    assert_false(result_read(tab, sizeof tab - 1, back, &failed));
    static const char *const strange[] = {"",
                                          "{}",
                                          "{\"id\":",
                                          "{\"id\":\"x\"}",
                                          "{\"id\":\"x\",\"other\":1}",
                                          "{\"id\":\"x\",\"custom_id\":\"y\"}",
                                          "\0\0\0\0",
                                          "x"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++)
        assert_false(result_read(strange[i], strlen(strange[i]), back, &failed));
}

/* Lines with bytes changed, removed or doubled: whatever they contain, there is a result with the line's id. */
static void mutated(void **state)
{
    (void)state;
    static const char *const seed_line[] = {
        LINE("{\"prompt\":\"a \\u00e9 b\",\"top_p\":3,\"stop\":[\"x\"]}"), CHAT("{" TURNS ",\"n\":0}"),
        "{\"id\":12,\"prompt\":[1,2,3],\"temperature\":-1,\"logit_bias\":{\"5\":1}}",
        "{\"id\":\"q\\\"\\\\\",\"messages\":7,\"max_tokens\":5}"};
    uint64_t random = 5;
    int n_failed = 0;
    for (int i = 0; i < 20000; i++) {
        char text[400], back[LINE_MAX_ID_BYTES + 1];
        size_t n = strlen(strcpy(text, seed_line[i % 4])), bytes = 0;
        for (int k = random_below(&random, 4); k >= 0; k--) {
            size_t where = (size_t)random_below(&random, (int)n), kind = (size_t)random_below(&random, 3);
            if (kind == 0)
                text[where] = (char)random_below(&random, 256);
            else if (kind == 1)
                memmove(text + where, text + where + 1, n - where), n--;
            else if (n + 2 < sizeof text)
                memmove(text + where + 1, text + where, n - where + 1), n++;
        }
        const struct line_rules rules = {&served, NULL};
        const struct input_line from = {text, n, 0, 3, 2, 100};
        struct line *l = line_open(&from, "in.jsonl", &rules, 1, 0);
        const struct result_style style = {i % 8 < 4, "demo", NULL};
        struct result_count count;
        bool failed = false;
        if (l->task->error.code != 0) {
            char *line = result_line(l, "in.jsonl", &style, 0, &bytes, &count);
            assert_true(result_read(line, bytes - 1, back, &failed));
            assert_string_equal(back, l->id);
            assert_true(failed);
            free(line);
            n_failed++;
        }
        line_close(l);
    }
    assert_true(n_failed > 15000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_lines), cmocka_unit_test(good_lines), cmocka_unit_test(late_lines),
        cmocka_unit_test(defaults),  cmocka_unit_test(seeds),      cmocka_unit_test(results),
        cmocka_unit_test(mutated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
