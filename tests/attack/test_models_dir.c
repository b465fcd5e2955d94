/* tests/attack/test_models_dir.c - `serve --models-dir` of a folder that attackers can write to: names with control
 * characters, pipes, devices and links in place of files, models that change while the server runs; names in requests
 * that try to leave the folder; 10,000 requests for unknown names; operations without permission; far too many
 * folders. */
#include "base/clock.h"
#include "tests/support/archive.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define N_UNKNOWN 10000
#define N_FOLDERS 66000 /* the server reads at most 65536 entries */
#define SECONDS   30.0  /* limit for every answer */

static char dir[256];

static const char *in(const char *name)
{
    static char path[2][700];
    static int turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void must(bool good, const char *what)
{
    if (good)
        return;
    perror(what);
    exit(99);
}

/* Makes a complete model of this name, then replaces one of its files. */
static void place(const char *name)
{
    char made[256];
    models_fixture(made, "llama-bf16");
    must(rename(made, in(name)) == 0, name);
}

static const char *without(const char *name, const char *file)
{
    static char path[700];
    (void)snprintf(path, sizeof path, "%s/%s/%s", dir, name, file);
    (void)unlink(path);
    return path;
}

static void make_folder(void)
{
    char longest[256];
    files_make_dir(dir);
    place("good");
    place("changes");
    place("pipe-config");
    must(mkfifo(without("pipe-config", "config.json"), 0600) == 0, "mkfifo");
    place("pipe-weights");
    must(mkfifo(without("pipe-weights", "model.safetensors"), 0600) == 0, "mkfifo");
    place("pipe-tokenizer");
    must(mkfifo(without("pipe-tokenizer", "tokenizer.json"), 0600) == 0, "mkfifo");
    place("device-config");
    must(symlink("/dev/zero", without("device-config", "config.json")) == 0, "symlink");
    place("device-weights");
    must(symlink("/dev/zero", without("device-weights", "model.safetensors")) == 0, "symlink");
    place("nowhere-weights");
    must(symlink("/no/such/file", without("nowhere-weights", "model.safetensors")) == 0, "symlink");
    place("folder-config");
    must(mkdir(without("folder-config", "config.json"), 0700) == 0, "mkdir");
    place("pipe-properties");
    must(mkfifo(without("pipe-properties", "serving.properties"), 0600) == 0, "mkfifo");
    must(symlink("/etc", in("out")) == 0 && symlink("nothing", in("dangling")) == 0, "symlink");
    must(mkfifo(in("pipe.tar.gz"), 0600) == 0 && symlink("/dev/zero", in("device.tar.gz")) == 0, "archives");
    files_write_text(dir, "none.tar.gz", "no archive");
    /* Odd names. */
    place("bell\a\033[31mline\nend");
    place("not-utf8-\xff\xfe");
    memset(longest, 'n', 200);
    longest[200] = '\0';
    place(longest);
    place("quote\"back\\slash");
    place(".hidden");
}

/* Returns the code of the answer to a request; 200: it was served, 0: no answer in time. */
static int ask(const struct serving *s, const char *text)
{
    struct talk t;
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    talk_send(&t, text, strlen(text), false);
    json_t *reply = talk_hear(&t, SECONDS);
    int code = reply == NULL                                   ? 0
               : strcmp(talk_text(reply, "status"), "ok") == 0 ? 200
                                                               : (int)talk_number(reply, "code");
    json_decref(reply);
    talk_close(&t);
    return code;
}

/* name is spelled as in JSON. */
static int story(const struct serving *s, const char *name)
{
    size_t bytes = strlen(name) + 200;
    char *text = malloc(bytes);
    (void)snprintf(text, bytes, "{\"model\":\"%s\",\"prompt\":[5],\"max_tokens\":2}", name);
    int code = ask(s, text);
    free(text);
    return code;
}

static void hostile_files(const struct serving *s)
{
    static const char *const bad[] = {"pipe-config",     "pipe-weights",    "pipe-tokenizer",
                                      "device-config",   "device-weights",  "folder-config",
                                      "nowhere-weights", "pipe-properties", "none"};
    case_begin("pipes, devices and folders in place of files are immediate errors; the other models are served");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int code = story(s, bad[i]);
        case_check(code == 500, "%s: %d, expected 500", bad[i], code);
    }
    case_check(story(s, "good") == 200, "the valid model");
    case_check(story(s, "quote\\\"back\\\\slash") == 200, "an odd but valid name");
    case_end();
}

static void names(const struct serving *s)
{
    static const char *const bad[] = {"../good",
                                      "good/",
                                      "./good",
                                      "good/../good",
                                      "a/b",
                                      "/etc",
                                      "",
                                      ".",
                                      "..",
                                      "out",
                                      "good\\u0000",
                                      "good\\u0000x",
                                      "\\u0000good",
                                      "good\\n",
                                      "bell\\u0007\\u001b[31mline\\nend",
                                      ".hidden",
                                      "dangling",
                                      "pipe",
                                      "device",
                                      "pipe.tar.gz",
                                      "good.tar.gz.tar.gz",
                                      "good\\u2215..",
                                      "%2e%2e/good",
                                      ".tar.gz",
                                      "good.tar.gz\\u0000"};
    char longest[5000], wrong[60];
    case_begin("names in requests never leave the folder");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int code = story(s, bad[i]);
        case_check(code == 404 || code == 400, "\"%s\": %d, expected 404 or 400", bad[i], code);
    }
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    case_check(story(s, longest) == 404, "a name of 4999 bytes");
    static const char *const kinds[] = {"7", "null", "[\"good\"]", "{}"};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        (void)snprintf(wrong, sizeof wrong, "{\"model\":%s,\"prompt\":[5]}", kinds[i]);
        int code = ask(s, wrong);
        case_check(code == 400, "model %s: %d, expected 400", kinds[i], code);
    }
    case_check(story(s, "good") == 200, "the valid model");
    case_end();
}

/* Returns the length of the metrics' text. */
static size_t metrics_bytes(const struct serving *s)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"metrics\"}");
    char *text = json_dumps(reply, 0);
    size_t n = text != NULL ? strlen(text) : 0;
    free(text);
    json_decref(reply);
    return n;
}

static void unknown_names(const struct serving *s)
{
    struct talk t;
    int n_heard = 0, n_right = 0;
    case_begin("%d requests for unknown names leave neither labels nor memory", N_UNKNOWN);
    size_t before = metrics_bytes(s);
    talk_open(&t, ZMQ_DEALER, s->endpoint, NULL, NULL);
    double first = 0;
    for (int sent = 0; n_heard < N_UNKNOWN;) {
        for (; sent < N_UNKNOWN && sent - n_heard < 200; sent++)
            talk_say(&t, "{\"model\":\"unknown-%d-%0100d\",\"prompt\":[5]}", sent, sent);
        json_t *reply = talk_hear(&t, SECONDS);
        if (!case_check(reply != NULL, "no answer to request %d", n_heard))
            break;
        n_right += talk_number(reply, "code") == 404;
        json_decref(reply);
        if (++n_heard == N_UNKNOWN / 2)
            first = serving_resident(s, 0);
    }
    talk_close(&t);
    double after = serving_resident(s, 0);
    size_t grown = metrics_bytes(s);
    case_check(n_right == N_UNKNOWN, "%d answers are 404", n_right);
    case_check(after < first + (2 << 20), "%.1f MB after half of the requests, %.1f MB after all", first / 1e6,
               after / 1e6);
    case_check(grown < before + 2000, "metrics of %zu bytes before, %zu after", before, grown);
    case_end();
}

/* Models change between the start, which reads names, and the load, which reads files. */
static void changes(const struct serving *s)
{
    case_begin("models that change while the server runs are loaded as they are then");
    models_edit(in("changes"), "config.json", "hidden_size", "1000000000");
    int code = story(s, "changes");
    case_check(code == 500, "a hidden_size of 10^9: %d, expected 500", code);
    files_write_text(in("changes"), "config.json", "[");
    code = ask(s, "{\"op\":\"load\",\"model\":\"changes\"}");
    case_check(code == 500, "an invalid config: %d, expected 500", code);
    files_remove_dir(in("changes"));
    code = ask(s, "{\"op\":\"load\",\"model\":\"changes\"}");
    case_check(code == 500, "a deleted folder: %d, expected 500", code);
    case_check(story(s, "good") == 200, "the valid model");
    case_end();
}

static void without_rights(void)
{
    static const char *const op[] = {"load", "unload", "pin"};
    char text[100];
    struct serving s;
    case_begin("clients over TCP without keys may not load, unload or pin");
    const char *const more[] = {"--endpoint", "tcp://127.0.0.1:*", NULL};
    if (case_check(serving_start_models(&s, dir, 1, more, NULL), "the server did not start")) {
        for (size_t i = 0; i < sizeof op / sizeof op[0]; i++) {
            (void)snprintf(text, sizeof text, "{\"op\":\"%s\",\"model\":\"good\"}", op[i]);
            int code = ask(&s, text);
            case_check(code == 400, "%s: %d, expected 400", op[i], code);
        }
        case_check(serving_metric(&s, "LoadedModelCount") == 0, "a model was loaded");
        case_check(story(&s, "good") == 200, "a request");
        (void)serving_stop(&s);
    }
    case_end();
}

static void too_many(void)
{
    char many[] = "/dev/shm/lockstep-many-XXXXXX", path[400]; /* in memory: a disk takes a minute for this many */
    struct process p;
    must(mkdtemp(many) != NULL, many);
    for (int i = 0; i < N_FOLDERS; i++) {
        (void)snprintf(path, sizeof path, "%s/%d", many, i);
        must(mkdir(path, 0700) == 0, "mkdir");
    }
    case_begin("a folder of %d folders is refused in one line, not one per folder", N_FOLDERS);
    const char *const argument[] = {"serve", "--models-dir", many, "--endpoint", "tcp://127.0.0.1:*", NULL};
    process_run(&p, &(struct process_setup){.ranks = 1}, argument);
    const char *said = p.text[PROCESS_ERR] != NULL ? p.text[PROCESS_ERR] : "";
    case_check(p.status == 3, "status %d: %.400s", p.status, said);
    case_check(strstr(said, "more than 65536 entries") != NULL, "%.400s", said);
    case_check(process_count_lines(said) < 40, "%d lines", process_count_lines(said));
    process_free(&p);
    case_end();
    files_remove_dir(many);
}

int main(void)
{
    char cache[300];
    struct serving s;
    make_folder();
    (void)snprintf(cache, sizeof cache, "%s-cache", dir);
    const char *const more[] = {"--models-cache", cache, "--max-batch", "4", NULL};
    case_begin("the server starts");
    bool started = case_check(serving_start_models(&s, dir, 1, more, NULL), "the server did not start");
    case_end();
    if (started) {
        hostile_files(&s);
        names(&s);
        unknown_names(&s);
        changes(&s);
        case_begin("the server ends with status 0");
        case_check(serving_stop(&s) == 0, "status");
        case_end();
    }
    without_rights();
    too_many();
    files_remove_dir(cache);
    files_remove_dir(dir);
    return cases_done();
}
