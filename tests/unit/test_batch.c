/* tests/unit/test_batch.c - the parts of a batch: input files, lines, ids, the journal, the manifest, results and their order. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "coordinator/batch/apart.h"
#include "coordinator/batch/ids.h"
#include "coordinator/batch/input.h"
#include "coordinator/batch/journal.h"
#include "coordinator/batch/line.h"
#include "coordinator/batch/manifest.h"
#include "coordinator/batch/ordered.h"
#include "coordinator/batch/recorded.h"
#include "coordinator/batch/result.h"
#include "coordinator/batch/retry.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct protocol_model model = {
    .name = "demo", .path = "/models/demo", .vocab = 1000, .n_eos = 1, .eos = {1}};

static char dir[256];

static const char *path_of(const char *name)
{
    static char path[4][600];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[next], "%s/%s", dir, name);
    return path[next];
}

static int set_up(void **state)
{
    (void)state;
    files_make_dir(dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    files_remove_dir(dir);
    return 0;
}

/* ---- input ---- */

/* "a:1:text|..." of all lines. */
static void expect_lines(const char *const *pattern, int n, const char *wanted)
{
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    enum input_got got;
    char all[1000] = "";
    assert_int_equal(inputs_open(&in, pattern, n, &e), 0);
    expect_none(&e);
    while ((got = inputs_next(&in, &line, &e)) == INPUT_LINE) {
        const char *name = strrchr(inputs_name(&in, line.file), '/');
        size_t used = strlen(all);
        (void)snprintf(all + used, sizeof all - used, "%s:%lld/%lld:%.*s|", name + 1, (long long)line.number,
                       (long long)line.index, (int)line.bytes, line.text);
    }
    assert_int_equal(got, INPUT_END);
    assert_int_equal(in.bytes_read, in.bytes);
    inputs_close(&in);
    assert_string_equal(all, wanted);
}

static void input_lines(void **state)
{
    (void)state;
    files_write(dir, "b", "one\ntwo\r\n\n  \nlast", 17);
    files_write(dir, "a1", "\n\n", 2);
    files_write(dir, "a2", "x\n", 2);
    files_write(dir, "none", "", 0);
    files_write(dir, "a*", "star\n", 5);
    expect_lines((const char *[]){path_of("b")}, 1, "b:1/0:one|b:2/1:two|b:5/4:last|");
    expect_lines((const char *[]){path_of("none"), path_of("a[12]"), path_of("b")}, 3,
                 "a2:1/2:x|b:1/3:one|b:2/4:two|b:5/7:last|");
    expect_lines((const char *[]){path_of("a*")}, 1, "a*:1/0:star|"); /* a name that exists is no pattern */
    expect_lines((const char *[]){path_of("a?")}, 1, "a*:1/0:star|a2:1/3:x|");
}

/* Of another share, say: with its manifest, or locked before it has one. */
static void input_outputs(void **state)
{
    (void)state;
    static const char manifest[] = "{\"format\":\"plain\",\"synced_bytes\":0}";
    struct inputs in;
    struct journal j;
    struct err e = {0};
    files_write(dir, "a.x", "one\n", 4);
    files_write(dir, "b.x", "{}\n", 3);
    files_write(dir, "b.x.manifest.json", manifest, strlen(manifest));
    files_write(dir, "c.x", "three\n", 6);
    files_write(dir, "c.x.manifest.json", "{\"state\":\"somebody's\"}", 22);
    assert_int_equal(journal_open(&j, path_of("d.x"), 0, &e), 0);
    expect_lines((const char *[]){path_of("*.x")}, 1, "a.x:1/0:one|c.x:1/1:three|");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(inputs_open(&in, (const char *[]){path_of(i == 0 ? "b.x" : "d.x")}, 1, &e), -1);
        EXPECT_PARTS(&e, ERR_USAGE, i == 0 ? "/b.x" : "/d.x", "a batch's output");
        inputs_close(&in);
        e = (struct err){0};
    }
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("[bd].x")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "nothing but outputs");
    inputs_close(&in);
    journal_close(&j);
    expect_lines((const char *[]){path_of("d*")}, 1, "");
}

static void input_refused(void **state)
{
    (void)state;
    struct inputs in;
    struct err e = {0};
    files_write(dir, "a", "x\n", 2);
    (void)symlink(path_of("a"), path_of("b"));
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("gone")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "/gone", "no file of this name");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("*.jsonl")}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "*.jsonl", "none that it matches");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("a"), path_of("b")}, 2, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "/b", "the same file as", "/a");
    inputs_close(&in);
    e = (struct err){0};
    assert_int_equal(inputs_open(&in, (const char *[]){dir}, 1, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "a folder");
    inputs_close(&in);
}

/* A line above the bound is told once, and what follows has its right number. */
static void input_long_line(void **state)
{
    (void)state;
    size_t bytes = INPUT_MAX_LINE_BYTES + (3 << 20);
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'x', bytes);
    memcpy(text, "first\n", 6);
    memcpy(text + bytes - 5, "\nend\n", 5);
    files_write(dir, "long", text, bytes);
    free(text);
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("long")}, 1, &e), 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_int_equal(line.bytes, 5);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_null(line.text);
    assert_int_equal(line.number, 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "end", 3);
    assert_int_equal(line.number, 3);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_END);
    inputs_close(&in);
}

static void input_pipe(void **state)
{
    (void)state;
    struct inputs in;
    struct err e = {0};
    struct input_line line;
    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("pipe")}, 1, &e), 0);
    assert_int_equal(in.bytes, 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT); /* nobody writes yet */
    int fd = open(path_of("pipe"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT);
    assert_int_equal(write(fd, "ab\ncd", 5), 5);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "ab", 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_WAIT); /* half a line */
    (void)close(fd);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_LINE);
    assert_memory_equal(line.text, "cd", 2);
    assert_int_equal(inputs_next(&in, &line, &e), INPUT_END);
    inputs_close(&in);
}

/* ---- inputs as recorded ---- */

/* NULL: nothing has happened to them that matters. */
static void expect_recorded(const json_t *was, const char *name, const char *change)
{
    struct inputs in;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){path_of(name)}, 1, &e), 0);
    assert_int_equal(recorded_check(was, &in, "out", &e), change != NULL ? -1 : 0);
    if (change != NULL)
        EXPECT_PARTS(&e, ERR_INPUT, "--output out", change, "--force");
    else
        expect_none(&e);
    inputs_close(&in);
}

/* What is known of it when so many lines were read. */
static json_t *record(const char *name, int lines)
{
    struct inputs in;
    struct input_line line;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){path_of(name)}, 1, &e), 0);
    for (int i = 0; i < lines && inputs_next(&in, &line, &e) == INPUT_LINE; i++)
        continue;
    json_t *list = recorded_inputs(&in);
    assert_non_null(list);
    inputs_close(&in);
    return list;
}

static void recorded(void **state)
{
    (void)state;
    files_write(dir, "a", "one\ntwo\n", 8);
    files_write(dir, "b", "one\ntwo\n", 8);
    json_t *was = record("a", 2);
    expect_recorded(was, "a", NULL);
    expect_recorded(was, "b", "/a is no input any more");
    files_write(dir, "a", "one\ntwo\nthree\n", 14);
    expect_recorded(was, "a", NULL);
    files_write(dir, "a", "new\none\ntwo\n", 12);
    expect_recorded(was, "a", "/a has changed between bytes 0 and 8, lines 1 and 2");
    files_write(dir, "a", "one\n", 4);
    expect_recorded(was, "a", "/a has become shorter than the 8 bytes");
    assert_int_equal(unlink(path_of("a")) | mkfifo(path_of("a"), 0600), 0);
    expect_recorded(was, "a", "/a is no file that can be read again");
    json_decref(was);
    int fd = open(path_of("a"), O_RDWR | O_CLOEXEC);
    assert_int_equal(write(fd, "one\n", 4), 4);
    was = record("a", 1);
    assert_int_equal(close(fd), 0);
    expect_recorded(was, "a", "/a is no file that can be read again");
    json_decref(was);
    was = record("b", 0); /* nothing of it was read */
    files_write(dir, "b", "other\n", 6);
    expect_recorded(was, "b", NULL);
    expect_recorded(was, "a", NULL);
    json_decref(was);
    was = json_loads("[{\"path\": \"x\", \"bytes\": 3, \"sha256\": \"00\"}]", 0, NULL);
    (void)json_object_set_new(json_array_get(was, 0), "path", json_string(path_of("b")));
    expect_recorded(was, "b", "/b is recorded in a way that this version does not know");
    json_decref(was);
}

/* A last line may get the newline that it had not, but no further bytes. */
static void recorded_last_line(void **state)
{
    (void)state;
    files_write(dir, "a", "one\ntwo", 7);
    json_t *was = record("a", 2);
    expect_recorded(was, "a", NULL);
    files_write(dir, "a", "one\ntwo\nthree", 13);
    expect_recorded(was, "a", NULL);
    files_write(dir, "a", "one\ntwofold\n", 12);
    expect_recorded(was, "a", "/a has changed between bytes 0 and 8, lines 1 and 2");
    files_write(dir, "a", "one\ntw", 6);
    expect_recorded(was, "a", "/a has become shorter");
    json_decref(was);
}

static char *make_large(size_t bytes, uint64_t *random)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = i % 1000 == 999 ? '\n' : (char)('a' + random_below(random, 26));
    return text;
}

/* Every byte counts, and where it was is told as closely as there are marks. */
static void recorded_large(void **state)
{
    (void)state;
    size_t bytes = (9 << 20) + 77;
    uint64_t random = 3;
    char *text = make_large(bytes + 1, &random);
    files_write(dir, "large", text, bytes);
    json_t *was = record("large", INT_MAX);
    const json_t *read = json_object_get(json_array_get(was, 0), "read");
    assert_in_range(json_array_size(json_object_get(read, "marks")), 32, 63);
    files_write(dir, "large", text, bytes + 1);
    expect_recorded(was, "large", "has changed"); /* the last line goes on */
    for (int i = 0; i < 40; i++) {
        size_t at = i == 0 ? 0 : i == 1 ? bytes - 1 : (size_t)random_below(&random, (int)bytes);
        struct prefix_change c;
        struct err e = {0};
        char before = text[at];
        text[at] = before == '#' ? '*' : '#';
        files_write(dir, "large", text, bytes);
        int fd = open(path_of("large"), O_RDONLY | O_CLOEXEC);
        assert_int_equal(prefix_check(read, fd, "large", &c, &e), 0);
        (void)close(fd);
        assert_true(c.from <= (int64_t)at && (int64_t)at < c.to && c.to - c.from <= 256 << 10);
        assert_int_equal(c.first_line, c.from / 1000 + 1);
        assert_in_range(c.last_line, c.to / 1000, c.to / 1000 + 1);
        expect_recorded(was, "large", "has changed between bytes");
        text[at] = before;
    }
    json_decref(was);
    free(text);
}

/* What was not read may change. */
static void recorded_part(void **state)
{
    (void)state;
    size_t bytes = 5 << 20;
    uint64_t random = 4;
    char *text = make_large(bytes, &random);
    files_write(dir, "large", text, bytes);
    json_t *was = record("large", 10);
    text[bytes - 5] = '#';
    files_write(dir, "large", text, bytes);
    expect_recorded(was, "large", NULL);
    text[9500] = '#';
    files_write(dir, "large", text, bytes);
    expect_recorded(was, "large", "has changed between bytes 0 and 65536, lines 1 and 66");
    json_decref(was);
    free(text);
}

/* A manifest is outside input. */
static void recorded_strange(void **state)
{
    (void)state;
    static const char *const strange[] = {
        "{}",
        "{\"bytes\":-1,\"hash\":\"0\",\"stride\":65536,\"marks\":[]}",
        "{\"bytes\":4,\"hash\":\"0\",\"stride\":0,\"marks\":[]}",
        "{\"bytes\":4,\"hash\":\"0\",\"stride\":65536,\"marks\":[\"0\"]}",
        "{\"bytes\":70000,\"hash\":\"0\",\"stride\":65536,\"marks\":7}",
    };
    files_write(dir, "a", "one\n", 4);
    int fd = open(path_of("a"), O_RDONLY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        struct prefix_change c;
        struct err e = {0};
        json_t *was = json_loads(strange[i], 0, NULL);
        assert_int_equal(prefix_check(was, fd, "a", &c, &e), -1);
        EXPECT_PARTS(&e, ERR_INPUT, "the manifest's hash of a makes no sense");
        json_decref(was);
    }
    json_t *was = json_loads("{\"bytes\":4,\"hash\":7,\"stride\":65536,\"marks\":[]}", 0, NULL);
    struct prefix_change c;
    struct err e = {0};
    assert_int_equal(prefix_check(was, fd, "a", &c, &e), 0);
    assert_int_equal(c.to, 4);
    json_decref(was);
    (void)close(fd);
}

/* ---- lines ---- */

static struct line *parse(const char *text, const char *defaults)
{
    json_t *values = defaults != NULL ? json_loads(defaults, 0, NULL) : json_object();
    const struct line_rules rules = {&model, values};
    const struct input_line from = {text, strlen(text), 0, 3, 2, 100};
    struct line *l = line_open(&from, "in.jsonl", &rules, 1, 0);
    assert_non_null(l);
    json_decref(values);
    return l;
}

static void expect_bad(const char *text, const char *id, const char *field, const char *part)
{
    struct line *l = parse(text, NULL);
    const struct protocol_error *error = &l->job->error;
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
    expect_bad(LINE("{\"prompt\":\"a\",\"tools\":[1]}"), "c", "body.tools", "not implemented");
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
    const struct line_rules rules = {&model, NULL};
    struct line *l = line_open(&too_long, "in.jsonl", &rules, 1, 0);
    assert_int_equal(l->job->error.code, PROTOCOL_TOO_LARGE);
    assert_string_equal(l->id, made);
    line_close(l);
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
        if (l->job->error.code != 0)
            print_error("%s: %s: %s\n", rows[i].text, l->job->error.field, l->job->error.message);
        assert_int_equal(l->job->error.code, 0);
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
    const struct request_rules *r = &l->job->message.generate.rules;
    assert_int_equal(l->job->error.code, 0);
    assert_true(r->sampling.temperature == 0.5F && r->max_tokens == 77 && r->sampling.top_k == 5 && r->ignore_eos);
    line_close(l);
    l = parse("{\"prompt\":\"a\",\"temperature\":0,\"n_predict\":3,\"ignore_eos\":false}", values);
    r = &l->job->message.generate.rules;
    assert_true(r->sampling.temperature == 0 && r->max_tokens == 3 && !r->ignore_eos);
    line_close(l);
    /* who says that nothing is sampled is not contradicted by a default */
    l = parse("{\"prompt\":\"a\",\"do_sample\":false}", values);
    assert_int_equal(l->job->error.code, 0);
    assert_true(l->job->message.generate.rules.sampling.temperature == 0);
    line_close(l);
    l = parse("{\"prompt\":\"a\",\"num_beams\":2}", values);
    assert_int_equal(l->job->error.code, 0);
    assert_true(l->job->message.generate.rules.sampling.temperature == 0);
    line_close(l);
}

static void seeds(void **state)
{
    (void)state;
    assert_true(line_seed(7, "a") == line_seed(7, "a"));
    assert_true(line_seed(7, "a") != line_seed(8, "a") && line_seed(7, "a") != line_seed(7, "b"));
    assert_true(line_seed(7, "a") < UINT64_C(1) << 53);
    assert_int_equal(line_seed(0, "request-1"), 0xad73b98307d1f); /* BLAKE2b; a resumed run needs the same for ever */
}

/* ---- ids ---- */

static void many_ids(void **state)
{
    (void)state;
    struct ids t;
    struct err e = {0};
    char id[32];
    assert_int_equal(ids_open(&t, &e), 0);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < 20000; i++) {
            (void)snprintf(id, sizeof id, "id-%d", i);
            struct id_entry *entry = ids_get(&t, id, &e);
            assert_non_null(entry);
            assert_int_equal(entry->offset, pass == 0 ? -1 : i);
            assert_int_equal(entry->place, pass == 0 ? 0 : ids_place(i % 100, i + 1));
            entry->offset = i;
            entry->place = ids_place(i % 100, i + 1);
        }
    assert_int_equal(t.n, 20000);
    assert_int_equal(ids_file(ids_place(99, 12345)), 99);
    assert_int_equal(ids_line(ids_place(99, 12345)), 12345);
    assert_true(ids_place(1, 1) > ids_place(0, INT64_C(1) << 43));
    ids_close(&t);
}

/* ---- journal ---- */

struct heard {
    char text[200];
};

static bool on_line(void *context, const char *line, size_t bytes, int64_t offset, struct err *e)
{
    struct heard *h = context;
    size_t used = strlen(h->text);
    (void)e;
    (void)snprintf(h->text + used, sizeof h->text - used, "%lld:%.*s ", (long long)offset, (int)bytes, line);
    return bytes > 0 && line[0] != '!';
}

#define READER(h) (&(const struct journal_reader){"[", on_line, (h)})

static void expect_recovered(const char *text, size_t n, int64_t trusted, const char *heard, int64_t cut)
{
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t found = -1;
    size_t bytes, left = n - (size_t)cut;
    files_write(dir, "journal", text, n);
    assert_int_equal(journal_open(&j, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, trusted, READER(&h), &found, &e), 0);
    assert_string_equal(h.text, heard);
    assert_int_equal(found, cut);
    assert_int_equal(j.bytes, left);
    assert_int_equal(j.unsynced, trusted < (int64_t)left ? (int64_t)left - trusted : 0);
    assert_int_equal(journal_append(&j, "new\n", 4, 1, &e), 0);
    assert_int_equal(journal_sync(&j, &e), 0);
    assert_int_equal(j.unsynced, 0);
    journal_close(&j);
    char *now = files_read(dir, "journal", &bytes);
    assert_int_equal(bytes, left + 4);
    assert_memory_equal(now, text, left);
    assert_string_equal(now + left, "new\n");
    free(now);
}

#define RECOVERED(text, ...) expect_recovered((text), sizeof(text) - 1, __VA_ARGS__)

/* Refused, and nothing was changed. */
static void expect_kept(const char *text, size_t n, int64_t trusted, const char *part)
{
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    size_t bytes;
    files_write(dir, "journal", text, n);
    assert_int_equal(journal_open(&j, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, trusted, READER(&h), &cut, &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, part);
    journal_close(&j);
    char *now = files_read(dir, "journal", &bytes);
    assert_int_equal(bytes, n);
    assert_memory_equal(now, text, n);
    free(now);
}

#define KEPT(text, ...) expect_kept((text), sizeof(text) - 1, __VA_ARGS__)

static void recovered(void **state)
{
    (void)state;
    RECOVERED("", 0, "", 0);
    RECOVERED("[1]\n[22]\n", 9, "0:[1] 4:[22] ", 0);
    RECOVERED("[1]\n[22]\n[al", 0, "0:[1] 4:[22] ", 3);
    RECOVERED("[al", 0, "", 3);
    RECOVERED("not JSON\n[22]\n", 13, "0:not JSON 9:[22] ", 0); /* who trusts does not parse */
    /* after a power failure: all from the hole on, whatever is behind it */
    RECOVERED("[1]\n\0\0\n[3]\n", 4, "0:[1] ", 7);
    RECOVERED("[1]\n[\0\0]\n[3]\n", 4, "0:[1] ", 9);
    RECOVERED("[1]\n\0\0\0", 4, "0:[1] ", 3);
    /* a file of somebody else's */
    KEPT("[1]\n!\n[3]\n", 4, "line 2 is not a result");
    KEPT("[1]\n\n[3]\n", 4, "line 2 is not a result");
    KEPT("[1]\n!\0\n[3]\n", 5, "line 2 is not a result");
    KEPT("some notes\nof somebody\n", 0, "line 1 is not a result");
    KEPT("a note", 0, "line 1 is not a result");
    KEPT("[1]\n[2\n", 4, "line 2 is not a result");
}

/* --force on a file of which nothing is known. */
static void recovered_foreign(void **state)
{
    (void)state;
    RECOVERED("", JOURNAL_FOREIGN, "", 0);
    KEPT("[al", JOURNAL_FOREIGN, "no result of a batch");
    KEPT("a note", JOURNAL_FOREIGN, "line 1 is not a result");
    KEPT("[1]\na note", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("[1]\n!\n", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("[1]\n\0\n", JOURNAL_FOREIGN, "line 2 is not a result");
    KEPT("!\n", JOURNAL_FOREIGN, "line 1 is not a result");
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    files_write(dir, "journal", "[1]\n[2", 6);
    assert_int_equal(journal_open(&j, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, JOURNAL_FOREIGN, READER(&h), &cut, &e), 0);
    assert_true(cut == 2 && j.unsynced == 4); /* not known to be on disk */
    journal_close(&j);
}

/* Lines larger than a block, across blocks. */
static void recovered_long(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    struct heard h = {""};
    int64_t cut;
    size_t bytes = 5 << 20;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[1000] = text[(3 << 20) + 7] = '\n';
    text[0] = text[1001] = text[(3 << 20) + 8] = '[';
    text[999] = text[(3 << 20) + 6] = ']';
    files_write(dir, "journal", text, bytes);
    free(text);
    assert_int_equal(journal_open(&j, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_recover(&j, 0, READER(&h), &cut, &e), 0);
    assert_int_equal(j.bytes, (3 << 20) + 8);
    assert_int_equal(cut, bytes - (size_t)j.bytes);
    journal_close(&j);
}

/* After a failed sync the next one would succeed without having written anything. */
static void failed_sync(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    int pipes[2], kept;
    assert_int_equal(journal_open(&j, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_append(&j, "[]\n", 3, 1, &e), 0);
    assert_int_equal(pipe(pipes), 0);
    kept = dup(j.fd);
    assert_int_equal(dup2(pipes[1], j.fd), j.fd); /* pipes cannot be synced */
    assert_int_equal(journal_sync(&j, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "cannot be synced");
    e = (struct err){0};
    assert_int_equal(dup2(kept, j.fd), j.fd);
    assert_int_equal(journal_sync(&j, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "an earlier sync has failed");
    assert_int_equal(j.unsynced, 3);
    journal_close(&j);
    (void)close(kept);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}

static void one_writer(void **state)
{
    (void)state;
    struct journal a, b;
    struct err e = {0};
    assert_int_equal(journal_open(&a, path_of("journal"), 0, &e), 0);
    assert_int_equal(journal_open(&b, path_of("journal"), 0, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "another batch is writing");
    journal_close(&b);
    journal_close(&a);
    e = (struct err){0};
    assert_int_equal(journal_open(&b, path_of("journal"), 0, &e), 0);
    journal_close(&b);
    assert_int_equal(journal_open(&b, path_of("no/such/folder"), 0, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "cannot open", "No such file");
    journal_close(&b);
}

static void *wait_for_journal(void *context)
{
    struct err e = {0};
    (void)journal_open(context, path_of("journal"), 60, &e);
    return NULL;
}

/* Has this process the file open so many times? */
static bool opened(const char *path, int times)
{
    char found[600], name[64];
    for (int fd = 0; fd < 256; fd++) {
        (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(name, found, sizeof found - 1);
        times -= n > 0 && (size_t)n == strlen(path) && memcmp(found, path, (size_t)n) == 0;
    }
    return times <= 0;
}

/* A batch waits for the lock while the one that has it puts another file in its place: it gets that one. */
static void replaced(void **state)
{
    (void)state;
    struct journal a, b, c;
    struct ids ids;
    struct err e = {0};
    pthread_t waiter;
    size_t bytes;
    char path[600];
    (void)snprintf(path, sizeof path, "%s", path_of("journal"));
    assert_int_equal(ids_open(&ids, &e), 0);
    assert_int_equal(journal_open(&a, path, 0, &e), 0);
    assert_int_equal(journal_append(&a, "a\n", 2, 0, &e), 0);
    ids_get(&ids, "a", &e)->offset = 0;
    assert_int_equal(pthread_create(&waiter, NULL, wait_for_journal, &b), 0);
    while (!opened(path, 2))
        (void)sched_yield();
    assert_int_equal(ordered_rewrite(&a, &ids, &e), 0);
    assert_int_equal(journal_open(&c, path, 0, &e), -1); /* the new file is locked, too */
    EXPECT_PARTS(&e, ERR_IO, "another batch is writing");
    journal_close(&c);
    e = (struct err){0};
    journal_close(&a);
    assert_int_equal(pthread_join(waiter, NULL), 0);
    assert_true(b.fd >= 0 && b.bytes == 2);
    assert_int_equal(journal_append(&b, "b\n", 2, 0, &e), 0);
    journal_close(&b);
    ids_close(&ids);
    char *now = files_read(dir, "journal", &bytes);
    assert_string_equal(now, "a\nb\n");
    free(now);
}

/* 0: apart; else the message has these parts. */
static void expect_apart(const char *output, const char *status, const char *first, const char *second)
{
    const struct apart_file file[] = {{"--output", output}, {"the manifest", NULL}, {"--status-file", status}};
    struct inputs in;
    struct err e = {0};
    assert_int_equal(inputs_open(&in, (const char *[]){path_of("in")}, 1, &e), 0);
    assert_int_equal(apart_check(file, 3, &in, &e), first != NULL ? -1 : 0);
    if (first != NULL)
        EXPECT_PARTS(&e, ERR_USAGE, first, "the same file as", second);
    inputs_close(&in);
}

static void apart(void **state)
{
    (void)state;
    files_write(dir, "in", "x\n", 2);
    files_write(dir, "there", "", 0);
    assert_int_equal(symlink("there", path_of("link")), 0);
    assert_int_equal(symlink(".", path_of("folder")), 0);
    expect_apart("-", "-", NULL, NULL);
    expect_apart("-", NULL, NULL, NULL);
    expect_apart(path_of("out"), path_of("out.status"), NULL, NULL);
    expect_apart(path_of("there"), path_of("out"), NULL, NULL);
    expect_apart(path_of("there"), path_of("link"), "--status-file", "--output");
    expect_apart(path_of("out"), path_of("./folder/out"), "--status-file", "--output");
    expect_apart(path_of("folder/in"), NULL, "--output", "--input");
    expect_apart(path_of("out"), path_of("in"), "--status-file", "--input");
}

static void full_device(void **state)
{
    (void)state;
    struct journal j;
    struct err e = {0};
    assert_int_equal(journal_open(&j, "/dev/full", 0, &e), 0);
    assert_false(j.is_file);
    assert_int_equal(journal_append(&j, "x\n", 2, 0, &e), -1);
    expect_text(&e, ERR_IO, "/dev/full: cannot write: No space left on device");
    journal_close(&j);
}

/* A reader who stalls: appending never waits, whether the pipe blocks or not, and all comes in the end. */
static void stalled_reader(void **state)
{
    (void)state;
    static char line[5000], read_back[1 << 20];
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
        struct journal j = {.path = "pipe"};
        struct err e = {0};
        size_t held = 0;
        int end[2];
        assert_int_equal(pipe(end), 0);
        assert_int_equal(fcntl(end[1], F_SETFL, flags), 0);
        j.fd = end[1];
        for (int i = 0; i < 100; i++)
            assert_int_equal(journal_append(&j, line, sizeof line, 0, &e), 0);
        assert_true(j.n_pending > 100000);
        assert_in_range(journal_pending_lines(&j), j.n_pending / sizeof line, j.n_pending / sizeof line + 1);
        assert_int_equal(journal_flush(&j, &e), 0);
        for (ssize_t n = 1; held < 100 * sizeof line && n > 0; held += (size_t)n) {
            n = read(end[0], read_back + held, sizeof read_back - held);
            assert_int_equal(journal_flush(&j, &e), 0);
        }
        assert_int_equal(held, 100 * sizeof line);
        assert_int_equal(j.n_pending, 0);
        for (int i = 0; i < 100; i++)
            assert_memory_equal(read_back + (size_t)i * sizeof line, line, sizeof line);
        expect_none(&e);
        journal_close(&j);
        (void)close(end[0]);
    }
}

/* ---- manifest ---- */

static json_t *identity(const char *text)
{
    json_t *object = json_loads(text, 0, NULL);
    assert_non_null(object);
    return object;
}

static void expect_judged(const char *was, const char *is, const char *key, const char *found, const char *expected)
{
    struct manifest m;
    struct err e = {0};
    (void)unlink(path_of("out.manifest.json"));
    assert_int_equal(manifest_open(&m, path_of("out"), identity(was), &e), 0);
    assert_int_equal(manifest_check(&m, "out", &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "out", "--force");
    e = (struct err){0};
    assert_int_equal(
        manifest_write(
            &m, json_pack("{s:s, s:i, s:{s:i}}", "state", "running", "synced_bytes", 17, "tokens", "prompt", 5), &e),
        0);
    manifest_close(&m);
    assert_int_equal(manifest_open(&m, path_of("out"), identity(is), &e), 0);
    assert_int_equal(manifest_synced(&m), 17);
    assert_int_equal(manifest_number(&m, "tokens", "prompt"), 5);
    assert_int_equal(manifest_check(&m, "out", &e), key != NULL ? -1 : 0);
    if (key != NULL)
        EXPECT_PARTS(&e, ERR_INPUT, "out", key, found, expected, "--force");
    manifest_close(&m);
}

static void manifests(void **state)
{
    (void)state;
    static const char was[] =
        "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{\"top_p\":0.5}}";
    expect_judged(was, was, NULL, NULL, NULL);
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"3\"},\"seed\":0,\"defaults\":{\"top_p\":0.5}}",
                  "model.weights", "\"2\"", "\"3\"");
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":1,\"defaults\":{\"top_p\":0.5}}",
                  "seed", "0", "1");
    expect_judged(was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{}}", "defaults.top_p",
                  "0.5", "not set");
    expect_judged(
        was, "{\"model\":{\"config\":\"1\",\"weights\":\"2\"},\"seed\":0,\"defaults\":{\"top_p\":0.5,\"top_k\":4}}",
        "defaults.top_k", "not set", "4");
    struct manifest m;
    struct err e = {0};
    files_write(dir, "out.manifest.json", "{\"model\"", 8);
    assert_int_equal(manifest_open(&m, path_of("out"), identity("{}"), &e), -1);
    EXPECT_PARTS(&e, ERR_INPUT, "out.manifest.json");
    manifest_close(&m);
}

/* ---- results ---- */

/* The line of a job that failed, in both styles, and its id read back. */
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
             cut++) /* torn lines are no results, and nothing is read beyond their end */
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

/* Lines with bytes changed, gone or doubled: whatever they say, there is a result whose id is the line's. */
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
        const struct line_rules rules = {&model, NULL};
        const struct input_line from = {text, n, 0, 3, 2, 100};
        struct line *l = line_open(&from, "in.jsonl", &rules, 1, 0);
        const struct result_style style = {i % 8 < 4, "demo", NULL};
        struct result_count count;
        bool failed = false;
        if (l->job->error.code != 0) {
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

static void ordered(void **state)
{
    (void)state;
    static const char *const line[] = {"c 3\n", "gone\n", "a 1\n", "b 2\n"};
    static const uint64_t place[] = {5, 0, 1, 2};
    struct journal j;
    struct ids ids;
    struct err e = {0};
    size_t bytes, big = 200000;
    char *text = malloc(big);
    memset(text, 'x', big);
    text[big - 1] = '\n';
    assert_int_equal(ids_open(&ids, &e), 0);
    files_write(dir, "real", "", 0);
    assert_int_equal(symlink("real", path_of("out")), 0);
    assert_int_equal(chmod(path_of("real"), 0640), 0);
    assert_int_equal(journal_open(&j, path_of("out"), 0, &e), 0);
    for (int i = 0; i < 4; i++) {
        struct id_entry *entry = ids_get(&ids, line[i], &e);
        *entry = (struct id_entry){{entry->key[0], entry->key[1]}, place[i], j.bytes};
        assert_int_equal(journal_append(&j, line[i], strlen(line[i]), 0, &e), 0);
    }
    struct id_entry *entry = ids_get(&ids, "big", &e);
    entry->place = 3;
    entry->offset = j.bytes;
    assert_int_equal(journal_append(&j, text, big, 0, &e), 0);
    (void)ids_get(&ids, "without a result", &e);
    assert_int_equal(ordered_rewrite(&j, &ids, &e), 0);
    expect_none(&e);
    journal_close(&j);
    ids_close(&ids);
    struct stat st;
    assert_true(lstat(path_of("out"), &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(stat(path_of("out"), &st) == 0 && (st.st_mode & 07777) == 0640);
    char *now = files_read(dir, "real", &bytes);
    assert_int_equal(bytes, 8 + big + 9);
    assert_memory_equal(now, "a 1\nb 2\n", 8);
    assert_memory_equal(now + 8, text, big);
    assert_memory_equal(now + 8 + big, "c 3\ngone\n", 9);
    free(now);
    free(text);
}

static const char with_errors[] =
    "{\"id\":\"a\",\"text\":\"x\"}\n"
    "{\"id\":\"b\",\"error\":{\"code\":400}}\n"
    "{\"id\":\"batch_req_1\",\"custom_id\":\"c\",\"response\":{\"status_code\":500,\"body\":null}}\n"
    "{\"id\":\"batch_req_2\",\"custom_id\":7,\"response\":{\"status_code\":200,\"body\":{}}}\n";

/* Errors go, the rest stays where it can be found, and the file can be gone on with. */
static void errors_taken_out(void **state)
{
    (void)state;
    static const char kept[] =
        "{\"id\":\"a\",\"text\":\"x\"}\n"
        "{\"id\":\"batch_req_2\",\"custom_id\":7,\"response\":{\"status_code\":200,\"body\":{}}}\n";
    static const struct {
        const char *id;
        int64_t offset;
    } expected[] = {{"a", 0}, {"b", -1}, {"c", -1}, {"7", 22}};
    struct journal j;
    struct ids ids;
    struct err e = {0};
    int64_t n_kept = 0;
    size_t bytes;
    assert_int_equal(ids_open(&ids, &e), 0);
    for (size_t i = 0; i < 4; i++)
        ids_get(&ids, expected[i].id, &e)->offset = 5;
    files_write(dir, "out", with_errors, sizeof with_errors - 1);
    assert_int_equal(journal_open(&j, path_of("out"), 0, &e), 0);
    assert_int_equal(retry_take_out(&j, &ids, &n_kept, &e), 0);
    assert_int_equal(n_kept, 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(ids_get(&ids, expected[i].id, &e)->offset, expected[i].offset);
    assert_int_equal(j.bytes, sizeof kept - 1);
    assert_int_equal(journal_append(&j, "[]\n", 3, 0, &e), 0);
    assert_int_equal(journal_sync(&j, &e), 0);
    journal_close(&j);
    ids_close(&ids);
    char *now = files_read(dir, "out", &bytes);
    assert_int_equal(bytes, sizeof kept + 2);
    assert_memory_equal(now, kept, sizeof kept - 1);
    assert_memory_equal(now + sizeof kept - 1, "[]\n", 3);
    free(now);
    assert_int_not_equal(access(path_of("out.rewrite.tmp"), F_OK), 0);
}

/* What a run has left that was killed while it wrote is in nobody's way; what cannot be written leaves all as it was. */
static void rewriting_fails(void **state)
{
    (void)state;
    struct journal j;
    struct ids ids;
    int64_t n_kept = 0;
    size_t bytes;
    files_write(dir, "out", with_errors, sizeof with_errors - 1);
    for (int full = 1; full >= 0; full--) {
        struct rlimit was, few;
        struct err e = {0};
        assert_int_equal(ids_open(&ids, &e), 0);
        assert_int_equal(journal_open(&j, path_of("out"), 0, &e), 0);
        files_write(dir, "out.rewrite.tmp", "half a li", 9);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
        few = (struct rlimit){50, was.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, full ? &few : &was), 0);
        assert_int_equal(retry_take_out(&j, &ids, &n_kept, &e), full ? -1 : 0);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
        if (full)
            EXPECT_PARTS(&e, ERR_IO, "out: cannot be cleared of errors: File too large; it is as it was");
        else
            expect_none(&e);
        assert_int_not_equal(access(path_of("out.rewrite.tmp"), F_OK), 0);
        journal_close(&j);
        ids_close(&ids);
        char *now = files_read(dir, "out", &bytes);
        assert_int_equal(bytes == sizeof with_errors - 1, full);
        free(now);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* as main.c has it */
    const struct CMUnitTest tests[] = {
        TEST(input_lines),
        TEST(input_refused),
        TEST(input_long_line),
        TEST(input_pipe),
        TEST(recorded),
        TEST(recorded_large),
        TEST(recorded_last_line),
        TEST(recorded_part),
        TEST(recorded_strange),
        TEST(input_outputs),
        TEST(bad_lines),
        TEST(good_lines),
        TEST(defaults),
        TEST(seeds),
        TEST(many_ids),
        TEST(recovered),
        TEST(recovered_foreign),
        TEST(recovered_long),
        TEST(one_writer),
        TEST(full_device),
        TEST(stalled_reader),
        TEST(manifests),
        TEST(results),
        TEST(errors_taken_out),
        TEST(rewriting_fails),
        TEST(mutated),
        TEST(ordered),
        TEST(replaced),
        TEST(failed_sync),
        TEST(apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
