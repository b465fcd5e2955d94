/* tests/e2e/test_repository.c - models in a cache of the Hugging Face Hub, as hf download leaves them: named by their
 * repository, and served all together. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORY "Once upon a time, there was a little boy"

static char cache[256];

static const char *in(const char *below)
{
    static char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", cache, below);
    return path;
}

/* The demo model as demo/stories: links in a revision's folder to files with other names. */
static void make_cache(void)
{
    static const char *const folders[] = {"models--demo--stories",
                                          "models--demo--stories/blobs",
                                          "models--demo--stories/refs",
                                          "models--demo--stories/snapshots",
                                          "models--demo--stories/snapshots/0123abc",
                                          "models--demo--empty",
                                          "models--demo--empty/snapshots"};
    static const char *const names[] = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    files_make_dir(cache);
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        (void)mkdir(in(folders[i]), 0700);
    files_write_text(in("models--demo--stories/refs"), "main", "0123abc");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char link[700], blob[100];
        files_copy(models_demo(), in("models--demo--stories/blobs"), names[i]);
        (void)snprintf(link, sizeof link, "%s/%s", in("models--demo--stories/snapshots/0123abc"), names[i]);
        (void)snprintf(blob, sizeof blob, "../../blobs/%s", names[i]);
        if (symlink(blob, link) != 0)
            exit(99);
    }
}

static void generated(const char *model)
{
    struct process_setup setup = {.ranks = 2};
    struct process p;
    case_begin("generate --model %s", strncmp(model, "demo", 4) == 0 ? model : "CACHE/models--demo--stories");
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", model, "--prompt", "Once upon", "--max-tokens", "8",
                                 "--temperature", "0", NULL});
    case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strncmp(p.text[PROCESS_OUT], STORY, strlen(STORY)) == 0, "found: %s", p.text[PROCESS_OUT]);
    case_end();
    process_free(&p);
}

/* Asks for a story from "demo/stories". */
static void expect_story(const struct serving *s)
{
    json_t *reply = talk_ask(s->endpoint, "{\"model\":\"demo/stories\",\"prompt\":\"Once upon\",\"max_tokens\":8,"
                                          "\"temperature\":0}");
    case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "%s", talk_text(reply, "error/message"));
    const json_t *choice = json_array_get(json_object_get(reply, "choices"), 0);
    const char *text = json_string_value(json_object_get(choice, "text"));
    case_check(text != NULL && strcmp(text, STORY + strlen("Once upon")) == 0, "found: %s", text != NULL ? text : "");
    json_decref(reply);
}

static void served(void)
{
    struct serving s;
    case_begin("serve --model demo/stories has that name");
    if (case_check(serving_start_model(&s, "demo/stories", 2, SERVING_IPC, NULL), "no server")) {
        expect_story(&s);
        case_check(serving_stop(&s) == 0, "not 0");
    }
    case_end();
    case_begin("serve --models-dir with the cache has the repositories");
    if (case_check(serving_start_models(&s, cache, 2, NULL, NULL), "no server")) {
        expect_story(&s);
        case_check(strstr(s.p.text[PROCESS_ERR], "models--demo--empty is left out: demo/empty: 0 revisions") != NULL,
                   "standard error: %s", s.p.text[PROCESS_ERR]);
        case_check(serving_stop(&s) == 0, "not 0");
    }
    case_end();
}

int main(void)
{
    make_cache();
    (void)setenv("HF_HUB_CACHE", cache, 1);
    generated("demo/stories");
    generated(in("models--demo--stories"));
    served();
    files_remove_dir(cache);
    return cases_done();
}
