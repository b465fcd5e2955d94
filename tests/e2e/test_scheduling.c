/* tests/e2e/test_scheduling.c - a request's tokens are the same alone, in a busy batch, with a KV cache so small that
 * sequences are preempted, with the prefix cache and without, on 1 to 3 ranks; greedy, and sampled with penalties. The
 * demo model with sums in float32. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PROMPTS    7
#define N_SHARED     40 /* tokens at the beginning of all prompts but two */
#define N_NEW        44
#define SMALL_BLOCKS 13 /* blocks, for prompts of 3 or 4 blocks that grow to 6 */

/* Bytes of a KV block on each of 1, 2 and 3 ranks: 6 layers, 16 tokens, 32 elements, keys and values of 4 bytes, times
 * 3, 2 or 1 of the 3 KV heads. */
#define BLOCK_BYTES(ranks) (6 * 16 * 32 * 2 * 4 * (4 - (ranks)))

static const struct shape {
    const char *name;
    bool busy, small, caching;
    bool penalized; /* and sampled, instead of greedy */
} shape[] = {{"alone", false, false, false, false},
             {"in a busy batch, without the prefix cache", true, false, false, false},
             {"in a busy batch", true, false, true, false},
             {"preempted, without the prefix cache", true, true, false, false},
             {"preempted", true, true, true, false},
             {"alone, with penalties", false, false, false, true},
             {"preempted, with penalties", true, true, true, true}};

#define N_SHAPES (sizeof shape / sizeof shape[0])

static void write_prompts(const char *dir)
{
    char text[N_PROMPTS * 600];
    size_t n = 0;
    for (int i = 0; i < N_PROMPTS; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"prompt\": [");
        for (int k = 0; k < N_SHARED + 3 * i; k++) {
            int own = i % 3 == 2 || k >= N_SHARED ? 100 * i : 0;
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", k > 0 ? ", " : "",
                                  2 + (k * k * 13 + k * 7 + own) % 2000);
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
    }
    files_write(dir, "prompts.jsonl", text, n);
}

static void start_generate(struct process *p, int ranks, const struct shape *s, const char *prompts)
{
    char bytes[32];
    const char *arguments[32] = {"generate",
                                 "--model",
                                 models_demo(),
                                 "--prompts",
                                 prompts,
                                 "--max-tokens",
                                 "44",
                                 "--json",
                                 "--verbose",
                                 "--ignore-eos",
                                 "--max-batch",
                                 s->busy ? "7" : "1",
                                 "--max-batch-tokens",
                                 "48"};
    int n = 14;
    const struct process_setup setup = {.ranks = ranks};
    const char *const penalties[] = {"--repetition-penalty", "1.3", "--presence-penalty", "0.4",
                                     "--temperature",        "0.9"};
    for (size_t i = 0; i < sizeof penalties / sizeof penalties[0] && s->penalized; i++)
        arguments[n++] = penalties[i];
    if (!s->caching)
        arguments[n++] = "--no-enable-prefix-caching";
    if (s->small) {
        (void)snprintf(bytes, sizeof bytes, "%d", SMALL_BLOCKS * BLOCK_BYTES(ranks));
        arguments[n++] = "--kv-cache-memory-bytes";
        arguments[n++] = bytes;
    }
    process_start(p, &setup, arguments);
}

/* Returns the lines' token ids as one text, in the order of the prompts. */
static char *tokens_of(const struct process *p)
{
    json_t *all = json_array();
    const char *line = p->text[PROCESS_OUT];
    for (size_t n; *line != '\0'; line += n + (line[n] == '\n')) {
        n = strcspn(line, "\n");
        json_t *object = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
        case_check(json_array_size(json_object_get(object, "token_ids")) == N_NEW, "a line without %d tokens: %s",
                   N_NEW, line);
        (void)json_array_append(all, json_object_get(object, "token_ids"));
        json_decref(object);
    }
    case_check(json_array_size(all) == N_PROMPTS, "%zu lines", json_array_size(all));
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

/* Checks statistics of the run: whether sequences were preempted, and whether tokens were found in the cache. */
static void check_counts(const struct process *p, const struct shape *s)
{
    static const char after[] = " sequences preempted; ";
    const char *at = strstr(p->text[PROCESS_ERR], after);
    unsigned long long preempted = 0, found = 0, of = 0;
    while (at != NULL && at > p->text[PROCESS_ERR] && at[-1] >= '0' && at[-1] <= '9')
        at--;
    if (!case_check(at != NULL && sscanf(at, "%llu sequences preempted; %llu of %llu", &preempted, &found, &of) == 3,
                    "no counts in: %s", p->text[PROCESS_ERR]))
        return;
    case_check((preempted > 0) == s->small, "%llu preempted", preempted);
    case_check(s->caching ? found > 0 && of > found : found == 0 && of == 0, "%llu of %llu tokens found", found, of);
}

static void check_ranks(int ranks, const char *prompts)
{
    char *alone[2] = {NULL, NULL}; /* greedy, penalized */
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct process p;
        char **reference = &alone[shape[i].penalized];
        start_generate(&p, ranks, &shape[i], prompts);
        process_wait(&p);
        case_begin("%s on %d ranks", shape[i].name, ranks);
        case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
        char *tokens = tokens_of(&p);
        check_counts(&p, &shape[i]);
        if (*reference != NULL)
            case_check(strcmp(tokens, *reference) == 0, "other tokens:\n%s\nalone:\n%s", tokens, *reference);
        else
            *reference = strdup(tokens);
        free(tokens);
        case_end();
        process_free(&p);
    }
    case_begin("penalties change the tokens on %d ranks", ranks);
    case_check(strcmp(alone[0], alone[1]) != 0, "the tokens are the same");
    case_end();
    free(alone[0]);
    free(alone[1]);
}

int main(void)
{
    char dir[256], prompts[300];
    files_make_dir(dir);
    (void)snprintf(prompts, sizeof prompts, "%s/prompts.jsonl", dir);
    write_prompts(dir);
    for (int ranks = 1; ranks <= 3; ranks++)
        check_ranks(ranks, prompts);
    files_remove_dir(dir);
    return cases_done();
}
