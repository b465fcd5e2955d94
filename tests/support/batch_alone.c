/* tests/support/batch_alone.c - see batch_alone.h. */
#include "tests/support/batch_alone.h"
#include "tests/support/models.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_LEN       256
#define MAX_ARGUMENTS 16

static void parse(struct batch_alone *a, const char *const *more)
{
    struct err e = {0};
    char *argv[MAX_ARGUMENTS + 1] = {"lockstep", "batch",  "--model",  (char *)models_demo(),
                                     "--input",  a->input, "--output", a->output};
    int n = 8;
    for (; *more != NULL && n < MAX_ARGUMENTS; more++)
        argv[n++] = (char *)*more;
    assert_null(*more);
    (void)options_parse(&a->options, n, argv, &e);
    expect_none(&e);
}

void batch_alone_open(struct batch_alone *a, const char *dir, const char *output, const char *const *more, int n_seqs)
{
    struct err e = {0};
    const struct limits l = {.max_seqs = n_seqs,
                             .max_batch_tokens = 2048,
                             .max_len = MAX_LEN,
                             .max_logit_rows = n_seqs,
                             .n_blocks = n_seqs * MAX_LEN / KV_BLOCK_TOKENS};
    memset(a, 0, sizeof *a);
    (void)snprintf(a->input, sizeof a->input, "%s/in.jsonl", dir);
    (void)snprintf(a->output, sizeof a->output, "%s/%s", dir, output);
    parse(a, more);
    a->sampled = calloc((size_t)n_seqs, sizeof *a->sampled);
    assert_non_null(a->sampled);
    for (int i = 0; i < n_seqs; i++)
        a->sampled[i].token = 300 + i;
    assert_int_equal(model_config_read(&a->config, a->options.batch.service.run.model, &e), 0);
    assert_int_equal(checkpoint_open(&a->checkpoint, a->options.batch.service.run.model, &e), 0);
    assert_int_equal(plan_open(&a->plan, &l, &e), 0);
    assert_int_equal(batch_open(&a->batch, &a->options.batch, &a->config, &a->checkpoint, 1, &e), 0);
    assert_int_equal(batch_start(&a->batch, &l, &e), 0);
}

bool batch_alone_turn(struct batch_alone *a)
{
    struct err e = {0};
    plan_reset(&a->plan, a->n_steps);
    int rc = front_next(&a->batch.front, &a->plan, &e);
    if (rc == PLAN_IDLE)
        return true;
    assert_int_equal(rc, 0);
    if (a->plan.kind == PLAN_STOP)
        return false;
    (void)plan_pack(&a->plan);
    const struct scheduler *scheduler = &lanes_first(&a->batch.front.lanes)->scheduler;
    const struct step_result result = {
        .step = a->n_steps, .n_sampled = scheduler->flight[a->n_steps % SCHEDULER_FLIGHTS].n, .sampled = a->sampled};
    assert_int_equal(front_accept(&a->batch.front, &result, &e), 0);
    a->n_steps++;
    return true;
}

int batch_alone_close(struct batch_alone *a, struct err *e)
{
    int status = batch_close(&a->batch, e);
    plan_close(&a->plan);
    checkpoint_close(&a->checkpoint);
    free(a->sampled);
    return status;
}
