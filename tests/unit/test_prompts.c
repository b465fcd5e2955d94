/* tests/unit/test_prompts.c - commands/prompts.c: prompts from options and files, valid and invalid. */
#include "tests/unit/unit.h"

#include "commands/prompts.h"
#include "tests/support/files.h"
#include "tests/unit/letters.h"

#include <stdio.h>
#include <stdlib.h>

#define VOCAB N_LETTERS

static char dir[256], path[300];
static struct tokenizer *tokenizer;

static int open_all(void **state)
{
    (void)state;
    files_make_dir(dir);
    tokenizer = letters_open();
    return tokenizer != NULL ? 0 : -1;
}

static int close_all(void **state)
{
    (void)state;
    files_remove_dir(dir);
    tokenizer_close(&tokenizer);
    return 0;
}

static int read_bytes(struct prompt_list *list, const char *name, const char *text, size_t bytes, struct err *e)
{
    struct generate_options o = {.prompts = path};
    *e = (struct err){0};
    files_write(dir, name, text, bytes);
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return prompts_read(list, &o, VOCAB, e);
}

static struct prompt_list good(const char *name, const char *text)
{
    struct prompt_list list;
    struct err e;
    (void)read_bytes(&list, name, text, strlen(text), &e);
    expect_none(&e);
    return list;
}

static void bad(const char *name, const char *text, enum err_code code, const char *after_path)
{
    struct prompt_list list;
    struct err e;
    char want[ERR_TEXT_BYTES];
    if (read_bytes(&list, name, text, strlen(text), &e) == 0)
        print_error("accepted: %s\n", text);
    (void)snprintf(want, sizeof want, "%s%s", path, after_path);
    EXPECT_PARTS(&e, code, want);
    prompts_free(&list);
}

static void expect_prompt(const struct prompt_list *list, int i, const char *text, int line)
{
    assert_true(i < list->n);
    assert_string_equal(list->prompt[i].text, text);
    assert_int_equal(list->prompt[i].text_bytes, strlen(text));
    assert_int_equal(list->prompt[i].line, line);
    assert_int_equal(list->prompt[i].ids.n, 0);
}

static void options(void **state)
{
    (void)state;
    struct prompt_list list;
    struct err e = {0};
    struct generate_options o = {.prompt = "two\nlines"};
    assert_int_equal(prompts_read(&list, &o, VOCAB, &e), 0);
    assert_int_equal(list.n, 1);
    expect_prompt(&list, 0, "two\nlines", 0);
    prompts_free(&list);
    o = (struct generate_options){.prompt_ids = "3,0,31"};
    assert_int_equal(prompts_read(&list, &o, VOCAB, &e), 0);
    assert_int_equal(list.n, 1);
    assert_null(list.prompt[0].text);
    assert_int_equal(list.prompt[0].ids.n, 3);
    assert_int_equal(list.prompt[0].ids.id[2], 31);
    prompts_free(&list);
    o = (struct generate_options){.prompt_ids = "3,32"};
    assert_int_equal(prompts_read(&list, &o, VOCAB, &e), -1);
    expect_text(&e, ERR_USAGE, "--prompt-ids: found \"32\", expected token ids in [0, 31] with commas between");
    prompts_free(&list);
    const struct generate_options wrong[] = {
        {.prompt = NULL}, {.prompt = "a", .prompts = "b"}, {.prompts = "a", .prompt_ids = "1"}};
    for (int i = 0; i < 3; i++) {
        e = (struct err){0};
        assert_int_equal(prompts_read(&list, &wrong[i], VOCAB, &e), -1);
        expect_text(&e, ERR_USAGE, "expected exactly one of --prompt, --prompts and --prompt-ids");
        prompts_free(&list);
    }
}

static void text_files(void **state)
{
    (void)state;
    struct prompt_list list = good("p.txt", "first\n\n  second \r\n\r\n\nthird");
    assert_int_equal(list.n, 3);
    expect_prompt(&list, 0, "first", 1);
    expect_prompt(&list, 1, "  second ", 3);
    expect_prompt(&list, 2, "third", 6);
    prompts_free(&list);
    list = good("p.txt", "{braces} are no JSON\n{\"prompt\": \"nor here\"}\n");
    assert_int_equal(list.n, 2);
    expect_prompt(&list, 1, "{\"prompt\": \"nor here\"}", 2);
    prompts_free(&list);
    char many[3000] = "";
    for (int i = 0; i < 500; i++)
        strcat(many, "line\n");
    list = good("p.txt", many);
    assert_int_equal(list.n, 500);
    expect_prompt(&list, 499, "line", 500);
    prompts_free(&list);
}

/* Byte order marks are accepted only at the beginning; one of another encoding is named. */
static void byte_order_marks(void **state)
{
    (void)state;
    struct prompt_list list = good("p.txt", "\xef\xbb\xbf"
                                            "first\n\xef\xbb\xbf"
                                            "second\n");
    assert_int_equal(list.n, 2);
    expect_prompt(&list, 0, "first", 1);
    expect_prompt(&list, 1,
                  "\xef\xbb\xbf"
                  "second",
                  2);
    prompts_free(&list);
    list = good("p.txt", "\xef\xbb\xbf{\"prompt\": \"one\"}\n");
    expect_prompt(&list, 0, "one", 1);
    prompts_free(&list);
    bad("p.txt", "\xef\xbb\xbf\n", ERR_INPUT, ": no prompt, expected one prompt per line");
    bad("p.txt", "\xff\xfeOnce", ERR_INPUT, ": a byte order mark of UTF-16, expected UTF-8");
    bad("p.jsonl", "\xfe\xff{}", ERR_INPUT, ": a byte order mark of UTF-16, expected UTF-8");
}

static void json_files(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* by its name, and by its first line */
        struct prompt_list list =
            good(i == 0 ? "p.jsonl" : "p.txt", "{\"prompt\": \"one\"}\r\n\n{\"prompt\": [0, 31]}\n"
                                               "{\"prompt\": \"\"}\n{\"prompt\": []}");
        assert_int_equal(list.n, 4);
        expect_prompt(&list, 0, "one", 1);
        assert_null(list.prompt[1].text);
        assert_int_equal(list.prompt[1].line, 3);
        assert_int_equal(list.prompt[1].ids.n, 2);
        assert_int_equal(list.prompt[1].ids.id[1], 31);
        expect_prompt(&list, 2, "", 4);
        assert_int_equal(list.prompt[3].ids.n, 0);
        prompts_free(&list);
    }
    struct prompt_list list = good("p.jsonl", "{\"prompt\": \"a\\u0000b\"}");
    assert_int_equal(list.prompt[0].text_bytes, 3);
    assert_memory_equal(list.prompt[0].text, "a\0b", 4);
    prompts_free(&list);
}

static void bad_files(void **state)
{
    (void)state;
    /* A first line that begins like JSON is JSON, and never becomes the model's input. */
    bad("near.txt", "{\"Prompt\": \"a\"}\n", ERR_UNSUPPORTED,
        ": line 1: \"Prompt\" is not supported in a line of prompts, only \"prompt\" is");
    const char *good_line = "{\"prompt\": \"x\"}\n\n";
    static const struct {
        const char *line, *said;
        enum err_code code;
    } cases[] = {
        {"{\"prompt\": [0, 32]}", "\"prompt\" item 1 is out of range, expected a token id in [0, 31]", ERR_INPUT},
        {"{\"prompt\": [-1]}", "\"prompt\" item 0 is out of range", ERR_INPUT},
        {"{\"prompt\": [0, 1.0]}", "\"prompt\" item 1 is a real number, expected a token id", ERR_INPUT},
        {"{\"prompt\": [0, [1]]}", "\"prompt\" item 1 is an array", ERR_INPUT},
        {"{\"prompt\": 5}", "\"prompt\" is an integer, expected a string or a list of token ids", ERR_INPUT},
        {"{}", "\"prompt\" is nothing, expected", ERR_INPUT},
        {"{\"prompt\": null}", "\"prompt\" is null, expected", ERR_INPUT},
        {"{\"prompt\": \"x\", \"max_tokens\": 5}", "\"max_tokens\" is not supported in a line of prompts",
         ERR_UNSUPPORTED},
        {"[\"x\"]", "an array, expected an object with \"prompt\"", ERR_INPUT},
        {"plain text", "not valid JSON", ERR_INPUT},
        {"{\"prompt\": \"x\"", "not valid JSON", ERR_INPUT},
        {"{\"prompt\": \"\xff\"}", "not valid JSON", ERR_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200], said[300];
        (void)snprintf(text, sizeof text, "%s%s\n%s", good_line, cases[i].line, good_line);
        (void)snprintf(said, sizeof said, ": line 3: %s", cases[i].said);
        bad("p.jsonl", text, cases[i].code, said);
    }
    bad("p.txt", "", ERR_INPUT, ": no prompt, expected one prompt per line");
    bad("p.jsonl", "\n\r\n\n", ERR_INPUT, ": no prompt, expected one");
    struct prompt_list list;
    struct err e = {0};
    struct generate_options o = {.prompts = "/nonexistent/file"};
    assert_int_equal(prompts_read(&list, &o, VOCAB, &e), -1);
    expect_text(&e, ERR_IO, "/nonexistent/file: cannot open: No such file or directory");
    prompts_free(&list);
    e = (struct err){0};
    o.prompts = dir;
    assert_int_equal(prompts_read(&list, &o, VOCAB, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, dir, "directory");
    prompts_free(&list);
}

static void encoding(void **state)
{
    (void)state;
    struct generate_options o = {0};
    struct err e = {0};
    struct prompt_list list = good("p.jsonl", "{\"prompt\": \"cab<eos>\"}\n{\"prompt\": \"\"}\n{\"prompt\": []}\n"
                                              "{\"prompt\": \"<eos>x\"}\n");
    assert_int_equal(prompt_encode(&list.prompt[0], tokenizer, &o, VOCAB, 28, &e), 0);
    const int32_t want[] = {2, LETTER_AB, LETTER_EOS};
    assert_int_equal(list.prompt[0].ids.n, 3);
    assert_memory_equal(list.prompt[0].ids.id, want, sizeof want);
    /* An empty text begins with bos; an empty list of ids is an error. */
    assert_int_equal(prompt_encode(&list.prompt[1], tokenizer, &o, VOCAB, 28, &e), 0);
    assert_int_equal(list.prompt[1].ids.n, 1);
    assert_int_equal(list.prompt[1].ids.id[0], 28);
    assert_int_equal(prompt_encode(&list.prompt[2], tokenizer, &o, VOCAB, 28, &e), -1);
    expect_text(&e, ERR_INPUT, "the prompt is empty: expected at least one token");
    /* The tokenizer has ids that the model does not have. */
    e = (struct err){0};
    assert_int_equal(prompt_encode(&list.prompt[3], tokenizer, &o, 25, 28, &e), -1);
    expect_text(&e, ERR_INPUT, "tokenizer gives id 29, the model has 25: they do not belong together");
    prompts_free(&list);
    e = (struct err){0};
    list = good("p.jsonl", "{\"prompt\": \"\"}");
    assert_int_equal(prompt_encode(&list.prompt[0], tokenizer, &o, VOCAB, -1, &e), -1);
    expect_text(&e, ERR_INPUT, "the prompt is empty: expected at least one token");
    prompts_free(&list);
    e = (struct err){0};
    list = good("p.txt", "a\xff");
    assert_int_equal(prompt_encode(&list.prompt[0], tokenizer, &o, VOCAB, -1, &e), -1);
    assert_int_equal(e.code, ERR_INPUT);
    prompts_free(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options),    cmocka_unit_test(text_files), cmocka_unit_test(byte_order_marks),
        cmocka_unit_test(json_files), cmocka_unit_test(bad_files),  cmocka_unit_test(encoding),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
