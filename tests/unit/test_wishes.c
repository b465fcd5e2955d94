/* tests/unit/test_wishes.c - serving.properties and config.pbtxt: settings that are read, ignored or refused, and
 * invalid texts. */
#include "commands/models/wishes.h"
#include "tests/support/files.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int properties(struct wishes *w, const char *from, struct err *e)
{
    char *text = strdup(from);
    *w = (struct wishes){0};
    *e = (struct err){0};
    int rc = wishes_read_properties(w, text, "serving.properties", 4, e);
    free(text);
    assert_int_equal(rc == 0, e->code == ERR_NONE);
    return rc;
}

static int pbtxt(struct wishes *w, const char *from, struct err *e)
{
    char *text = strdup(from);
    *w = (struct wishes){0};
    *e = (struct err){0};
    int rc = wishes_read_pbtxt(w, text, "config.pbtxt", "chat", e);
    free(text);
    assert_int_equal(rc == 0, e->code == ERR_NONE);
    return rc;
}

static void keys_of_djl(void **state)
{
    (void)state;
    struct wishes w;
    struct err e;
    (void)properties(&w,
                     "# of a container\r\nengine=Python\noption.model_id = .\n option.max_model_len: 2048\r\n"
                     "option.n_positions=512\nbatch_size=16\noption.max_rolling_batch_size=32\n\n!x\n"
                     "required_memory_mb=100\ngpu.required_memory_mb=300\noption.tensor_parallel_degree=max\n"
                     "option.entryPoint=djl_python.huggingface\noption.dtype=fp16\nload_on_devices=0;1",
                     &e);
    expect_none(&e);
    assert_true(w.max_model_len == 512 && w.max_batch == 16 && w.memory == 300 << 20);
    assert_string_equal(w.unread, "option.dtype, load_on_devices");
    (void)properties(&w, "option.tensor_parallel_degree=2", &e);
    assert_string_equal(w.unread, "option.tensor_parallel_degree");
    (void)properties(&w, "option.tensor_parallel_degree=4", &e);
    assert_string_equal(w.unread, "");
}

static void refused(void **state)
{
    (void)state;
    struct wishes w;
    struct err e;
    (void)properties(&w, "option.model_id=org/model", &e);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "serving.properties", "option.model_id", "org/model");
    (void)properties(&w, "option.model_id=/etc", &e);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "/etc");
    (void)properties(&w, "option.entryPoint=model.py", &e);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "Python code");
    static const char *const bad[] = {"batch_size=0", "batch_size=-1", "batch_size=1x",
                                      "batch_size=", "batch_size=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)properties(&w, bad[i], &e);
        EXPECT_PARTS(&e, ERR_INPUT, "batch_size", "expected a number from 1 to 2147483647");
    }
    (void)properties(&w, "alone", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "alone", "expected KEY=VALUE");
}

static void keys_of_triton(void **state)
{
    (void)state;
    struct wishes w;
    struct err e;
    (void)pbtxt(
        &w,
        "name: \"chat\" # ours\nmax_batch_size: 8\nplatform: 'x'\ninput [ { name: \"a\\\"}\" dims: [ -1, 2 ] } ]\n"
        "instance_group { count: 1 kind: KIND_GPU }, parameters: { key: \"x\" }",
        &e);
    expect_none(&e);
    assert_true(w.max_batch == 8);
    assert_string_equal(w.unread, "platform, input, instance_group, parameters");
    (void)pbtxt(&w, "name: \"other\" max_batch_size: 0", &e);
    expect_none(&e);
    assert_true(w.max_batch == 0);
    assert_string_equal(w.unread, "name");
}

static void warmups(void **state)
{
    (void)state;
    struct wishes w;
    struct err e;
    (void)pbtxt(
        &w,
        "model_warmup [ { name: \"long\" batch_size: 4 count: 3 inputs { key: \"input_ids\" value: { data_type: "
        "TYPE_INT32 dims: [ 2, 128 ] random_data: true } } inputs { key: \"lengths\" value { data_type: "
        "TYPE_INT64 dims: 1 zero_data: true } } }, { name: 'text' inputs { key: \"text_input\" value { data_type: "
        "TYPE_STRING dims: [ 900 ] input_data_file: \"hello\" } } strange: { a: 1 } } ]\n"
        "model_warmup { batch_size: 0 }",
        &e);
    expect_none(&e);
    assert_int_equal(w.n_warmups, 3);
    assert_string_equal(w.warmup[0].name, "long");
    assert_true(w.warmup[0].n_tokens == 256 && w.warmup[0].batch == 4 && w.warmup[0].count == 3);
    assert_string_equal(w.warmup[1].name, "text");
    assert_true(w.warmup[1].n_tokens == 8 && w.warmup[1].batch == 1 && w.warmup[1].count == 1);
    assert_true(w.warmup[2].n_tokens == 8 && w.warmup[2].batch == 1);
    assert_string_equal(w.unread, "model_warmup.inputs.input_data_file, model_warmup.?");
    (void)pbtxt(&w, "model_warmup { inputs { value { data_type: TYPE_INT32 dims: [ 1048576, 1048576, 1048576 ] } } }",
                &e);
    expect_none(&e);
    assert_int_equal(w.warmup[0].n_tokens, 1 << 20);
    static const char *const bad[] = {"model_warmup",
                                      "model_warmup: 5",
                                      "model_warmup { count: -1 }",
                                      "model_warmup { batch_size: 99999 }",
                                      "model_warmup { inputs: 5 }",
                                      "model_warmup { inputs { value { dims: [ 1, ",
                                      "model_warmup [ { count: 1 }",
                                      "model_warmup [ { count: 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)pbtxt(&w, bad[i], &e);
        EXPECT_PARTS(&e, ERR_INPUT, "config.pbtxt");
    }
    (void)pbtxt(&w, "model_warmup { inputs { value { value { dims: [ 900 ] data_type: TYPE_INT32 } } } }", &e);
    expect_none(&e);
    assert_int_equal(w.warmup[0].n_tokens, 8);
    char deep[sizeof "model_warmup { inputs { " + 100 * sizeof "value { "] = "model_warmup { inputs { ";
    for (int i = 0; i < 100; i++)
        strcat(deep, "value { ");
    (void)pbtxt(&w, deep, &e);
    EXPECT_PARTS(&e, ERR_INPUT, "nested");
    char many[40 * (WISHES_WARMUPS + 1)] = "";
    for (int i = 0; i <= WISHES_WARMUPS; i++)
        strcat(many, "model_warmup { count: 1 } ");
    (void)pbtxt(&w, many, &e);
    EXPECT_PARTS(&e, ERR_INPUT, "more than 16");
}

static void no_texts(void **state)
{
    (void)state;
    struct wishes w;
    struct err e;
    char deep[400], any[64], warm[200];
    uint64_t seed = 3;
    memset(deep, '{', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    deep[0] = 'x';
    (void)pbtxt(&w, deep, &e);
    EXPECT_PARTS(&e, ERR_INPUT, "nested deeper than 64");
    (void)pbtxt(&w, "a { b: 1", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "is not terminated");
    (void)pbtxt(&w, "a: \"b", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "is not terminated");
    (void)pbtxt(&w, "a: }", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "expected a value");
    (void)pbtxt(&w, "a", &e);
    EXPECT_PARTS(&e, ERR_INPUT, "expected a value");
    for (int i = 0; i < 200000; i++) { /* any bytes give a result, and no read beyond the text */
        static const char letters[] = "a:={}[]\"'\\#\n, 1;.";
        int n = random_below(&seed, (int)sizeof any);
        for (int k = 0; k < n; k++)
            any[k] = letters[random_below(&seed, (int)sizeof letters - 1)];
        any[n] = '\0';
        (void)pbtxt(&w, any, &e);
        (void)properties(&w, any, &e);
        (void)snprintf(warm, sizeof warm, "model_warmup %s { inputs { %s } }", any, any);
        (void)pbtxt(&w, warm, &e);
    }
}

static void files(void **state)
{
    (void)state;
    static char large[WISHES_MAX_BYTES + 1];
    struct wishes w;
    struct err e = {0};
    char dir[256], path[300];
    files_make_dir(dir);
    assert_int_equal(wishes_read(&w, dir, "chat", 1, &e), 0);
    assert_true(w.max_batch == 0 && w.max_model_len == 0 && w.memory == 0);
    files_write_text(dir, "serving.properties", "batch_size=16\n");
    files_write_text(dir, "config.pbtxt", "max_batch_size: 4\n");
    assert_int_equal(wishes_read(&w, dir, "chat", 1, &e), 0);
    assert_int_equal(w.max_batch, 4);
    files_write(dir, "config.pbtxt", "a: 1\0b", 6);
    assert_int_equal(wishes_read(&w, dir, "chat", 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "config.pbtxt", "NUL");
    memset(large, '#', sizeof large);
    files_write(dir, "config.pbtxt", large, sizeof large);
    e = (struct err){0};
    assert_int_equal(wishes_read(&w, dir, "chat", 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "at most 65536");
    (void)snprintf(path, sizeof path, "%s/config.pbtxt", dir);
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    e = (struct err){0};
    assert_int_equal(wishes_read(&w, dir, "chat", 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "not a regular file");
    files_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(keys_of_djl),    cmocka_unit_test(refused),
                                       cmocka_unit_test(keys_of_triton), cmocka_unit_test(warmups),
                                       cmocka_unit_test(no_texts),       cmocka_unit_test(files)};
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
