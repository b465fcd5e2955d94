/* tests/unit/test_access_log.c - coordinator/server/access_log.c: whatever a client puts into a prompt, its line
 * exists, is complete, and shows as much of the prompt as fits. */
#include "tests/unit/unit.h"

#include "coordinator/server/access_log.h"
#include "tests/support/files.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN 4096

static const struct served served = {.model = {.name = "m", .vocab = 1000}};

static struct task *parse(const char *json, size_t bytes)
{
    zmq_msg_t body;
    assert_int_equal(zmq_msg_init_size(&body, bytes), 0);
    memcpy(zmq_msg_data(&body), json, bytes);
    struct task *task = task_open(1, &body, false, 0);
    assert_non_null(task);
    task->served = &served;
    task_read(task);
    if (task->error.code == 0)
        task_check(task);
    return task;
}

/* Returns the line that a message leads to; the caller decrefs it. */
static json_t *line_of(const char *json, size_t json_bytes)
{
    struct access_log log;
    struct err e = {0};
    char folder[256], path[300];
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/log", folder);
    assert_int_equal(access_log_open(&log, path, true, &e), 0);
    struct task *task = parse(json, json_bytes);
    access_log_write(&log, task, &(struct outcome){.code = 200});
    task_close(task);
    assert_int_equal(access_log_lost(&log), 0);
    access_log_close(&log);
    char *text = files_read(folder, "log", &bytes);
    assert_true(bytes > 0 && text[bytes - 1] == '\n');
    assert_ptr_equal(strchr(text, '\n'), text + bytes - 1);
    json_t *line = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    assert_non_null(line);
    free(text);
    files_remove_dir(folder);
    return line;
}

static json_t *line_of_prompt(const char *text, size_t bytes)
{
    json_t *message = json_pack("{s:o, s:i}", "prompt", json_stringn(text, bytes), "max_tokens", 1);
    char *json = json_dumps(message, 0);
    json_t *line = line_of(json, strlen(json));
    free(json);
    json_decref(message);
    return line;
}

/* Letters, one character, letters again: the log shows the longest part that ends with a whole character. */
static void check_cut(const char *character, int before)
{
    char text[2 * SHOWN];
    size_t n = strlen(character), at = (size_t)before;
    memset(text, 'a', sizeof text);
    memcpy(text + at, character, n);
    json_t *line = line_of_prompt(text, sizeof text), *list = json_object_get(line, "prompts");
    size_t shown = at < SHOWN && at + n > SHOWN ? at : SHOWN;
    assert_int_equal(json_array_size(list), 1);
    assert_int_equal(json_string_length(json_array_get(list, 0)), shown);
    assert_memory_equal(json_string_value(json_array_get(list, 0)), text, shown);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(line, "prompt_lengths"), 0)), sizeof text);
    json_decref(line);
}

static void cut_between_characters(void **state)
{
    (void)state;
    static const char *const character[] = {"z", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\xa6\x93"};
    for (int i = 0; i < 4; i++)
        for (int before = SHOWN - 5; before <= SHOWN; before++)
            check_cut(character[i], before);
}

/* Characters of four bytes, at every offset from the cut. */
static void cut_in_long_rows(void **state)
{
    (void)state;
    char text[2 * SHOWN];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 <= sizeof text; i += 4)
            memcpy(text + i, "\xf0\x9f\xa6\x93", 4);
        size_t bytes = shift + (sizeof text - shift) / 4 * 4, shown = shift + (SHOWN - shift) / 4 * 4;
        json_t *line = line_of_prompt(text, bytes);
        json_t *prompt = json_array_get(json_object_get(line, "prompts"), 0);
        assert_int_equal(json_string_length(prompt), shown);
        json_decref(line);
    }
}

static void odd_texts(void **state)
{
    (void)state;
    static const char odd[] =
        "{\"prompt\": \"a\\u0000b\\n\\r\\u001b[2J\\u2028\\uD83E\\uDD93\\\"}\\u007f\", \"max_tokens\": 1}";
    static const char want[] = "a\0b\n\r\033[2J\xe2\x80\xa8\xf0\x9f\xa6\x93\"}\x7f";
    json_t *line = line_of(odd, sizeof odd - 1), *prompt = json_array_get(json_object_get(line, "prompts"), 0);
    assert_int_equal(json_string_length(prompt), sizeof want - 1);
    assert_memory_equal(json_string_value(prompt), want, sizeof want - 1);
    json_decref(line);
}

/* A message that cannot be parsed (half a surrogate, bytes that are not UTF-8) must still be logged. */
static void malformed(void **state)
{
    (void)state;
    static const char *const bad[] = {"{\"prompt\": \"\\ud83e\"}",
                                      "{\"prompt\": \"\xff\xfe\"}",
                                      "{\"prompt\": \"\xf0\x9f\xa6\"}",
                                      "{\"prompt\": \"\xed\xa0\xbe\"}",
                                      "{",
                                      "",
                                      "[1]"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *line = line_of(bad[i], strlen(bad[i]));
        assert_int_equal(json_integer_value(json_object_get(line, "message_bytes")), strlen(bad[i]));
        json_decref(line);
    }
}

/* Token ids form a prompt, too. */
static void ids(void **state)
{
    (void)state;
    static const char json[] = "{\"prompt\": [[5, 6, 7], [8]], \"max_tokens\": 1}";
    json_t *line = line_of(json, sizeof json - 1), *list = json_object_get(line, "prompts");
    json_t *want = json_pack("[[iii][i]]", 5, 6, 7, 8), *sizes = json_pack("[ii]", 3, 1);
    assert_true(json_equal(list, want));
    assert_true(json_equal(json_object_get(line, "prompt_lengths"), sizes));
    json_decref(want);
    json_decref(sizes);
    json_decref(line);
}

/* Prompts that exceed the log's memory for all waiting lines: the line is not lost, and gives their number. */
static void many_prompts(void **state)
{
    (void)state;
    enum { N = 4096, BYTES = 3000 };
    json_t *list = json_array(), *message = json_pack("{s:o, s:i}", "prompt", list, "max_tokens", 1);
    char text[BYTES];
    memset(text, '\x01', sizeof text); /* six bytes each in JSON */
    for (int i = 0; i < N; i++)
        (void)json_array_append_new(list, json_stringn(text, sizeof text));
    char *json = json_dumps(message, 0);
    json_t *line = line_of(json, strlen(json)), *shown = json_object_get(line, "prompts");
    assert_true(json_array_size(shown) >= 10 && json_array_size(shown) < N);
    assert_int_equal(json_string_length(json_array_get(shown, 0)), BYTES);
    assert_int_equal(json_integer_value(json_object_get(line, "n_prompts")), N);
    free(json);
    json_decref(message);
    json_decref(line);
}

static void chats(void **state)
{
    (void)state;
    static const char json[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi \xf0\x9f\xa6\x93\"}], \"max_tokens\": 1}";
    json_t *line = line_of(json, sizeof json - 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(line, "prompts"), 0)), "hi \xf0\x9f\xa6\x93");
    json_decref(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_between_characters),
        cmocka_unit_test(cut_in_long_rows),
        cmocka_unit_test(odd_texts),
        cmocka_unit_test(malformed),
        cmocka_unit_test(ids),
        cmocka_unit_test(many_prompts),
        cmocka_unit_test(chats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
