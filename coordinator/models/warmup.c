/* coordinator/models/warmup.c - see warmup.h. */
#include "coordinator/models/warmup.h"
#include "base/clock.h"
#include "coordinator/tasks/encode.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>

#define MOST_TOKENS (1 << 16) /* most tokens of a batch's prompts together, since they are made on the I/O thread */

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* {"prompt": [[..], ..], "max_tokens": 4, ..}; NULL: out of memory. */
static json_t *message_of(int n_prompts, int n_tokens, int turn, int vocab)
{
    json_t *prompts = json_array();
    for (int i = 0; i < n_prompts; i++) {
        json_t *ids = json_array();
        for (int k = 0; k < n_tokens; k++)
            (void)json_array_append_new(ids, json_integer(((int64_t)k * 7919 + turn * 101 + i * 31 + 1) % vocab));
        (void)json_array_append_new(prompts, ids);
    }
    return json_pack("{s:o, s:i, s:f, s:b}", "prompt", prompts, "max_tokens", WARMUP_TOKENS, "temperature", 0.0,
                     "ignore_eos", 1);
}

/* A worker's part, which takes no time for ids. */
static void encode(struct task *task, const struct served *served)
{
    const struct protocol_generate *g = &task->message.generate;
    struct err e = {0};
    task->ids = err_calloc(&e, (size_t)g->n_prompts, sizeof *task->ids, "warm-up");
    for (; task->ids != NULL && task->n_ids < g->n_prompts && task->error.code == 0; task->n_ids++)
        (void)encode_request(g, task->n_ids, served->tokenizer, served->chat, served->model.vocab, served->bos,
                             &task->ids[task->n_ids], &task->error);
    if (e.code != ERR_NONE)
        (void)protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "%s", e.text);
}

struct task *warmup_task(const struct warmup *w, int turn, const struct served *served, int max_len, int max_seqs,
                         struct err *e)
{
    int n_prompts = smaller(w->batch, max_seqs);
    int n_tokens = smaller(smaller(w->n_tokens, max_len - WARMUP_TOKENS), MOST_TOKENS / n_prompts);
    json_t *message = message_of(n_prompts, n_tokens > 0 ? n_tokens : 1, turn, served->model.vocab);
    struct task *task = message != NULL ? task_open(UINT64_MAX - (uint64_t)turn, NULL, false, seconds_now()) : NULL;
    if (task != NULL) {
        task->parsed = task->checked = true;
        task->served = served;
        if (protocol_parse_generate(&task->message, message, NULL, &served->model, &task->error) == 0)
            encode(task, served);
        if (task->error.code == 0)
            (void)task_prepare(task, max_len, INT64_MAX, 0);
    }
    json_decref(message);
    if (task != NULL && task->error.code == 0)
        return task;
    ERR(e, ERR_MEMORY, "%s", task != NULL ? task->error.message : "out of host memory");
    task_close(task);
    return NULL;
}
