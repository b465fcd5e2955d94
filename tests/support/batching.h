/* tests/support/batching.h - files of `lockstep batch` for tests: makes inputs, reads outputs. */
#ifndef TESTS_SUPPORT_BATCHING_H
#define TESTS_SUPPORT_BATCHING_H

#include "tests/support/process.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Writes n plain lines "r0", "r1", .. of sampled requests, max_tokens each. */
void batching_prompts(const char *dir, const char *name, int n, int max_tokens);

/* Runs `lockstep batch` on the demo model until it ends: one thread a rank, no bar. words: more options, NULL at the
 * end; "@x" is the file x of dir, at most 8 of them. input: standard input; NULL: none. */
void batching_run(struct process *p, const char *dir, int ranks, const char *input, const char *const *words);
#define BATCHING_RUN(p, dir, ranks, input, ...) \
    batching_run((p), (dir), (ranks), (input), (const char *const[]){__VA_ARGS__, NULL})

/* Removes an output, its manifest and its status file, if they exist. */
void batching_forget(const char *dir, const char *output);

struct batch_results {
    json_t *by_id;          /* id or custom_id -> the line's object */
    const char **order;     /* [n] ids in the file's order, borrowed from by_id */
    int n;                  /* whole lines with an id */
    int n_twice, n_strange; /* repeated ids; complete lines that are not results */
    size_t torn;            /* bytes after the last newline */
};

/* Reads an output. A missing file counts as empty. */
void batching_read(struct batch_results *r, const char *dir, const char *name);
void batching_free(struct batch_results *r);

/* Returns the text of a plain result, or of an OpenAI one; "" if there is none. */
const char *batching_text(const json_t *result);

/* Returns the number of a's results that differ from b's, by id and text. */
int batching_differences(const struct batch_results *a, const struct batch_results *b);

/* Returns a member of OUTPUT.manifest.json by its path "counts/failed"; NULL: none. The caller decrefs it. */
json_t *batching_manifest(const char *dir, const char *output, const char *path);

#endif
