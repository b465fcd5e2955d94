/* tests/spmd/test_heads.c - draft heads (EAGLE-3), and layers that predict further tokens (MTP): every logit of a head
 * after a prompt, and the following chain of drafts with their logits, compared with the oracle of
 * tests/parity/make_heads.py; on as many ranks as mpirun gives, with chunks of several lengths in both models,
 * scattered blocks, and another sequence beside. argv: nothing, or "cpu" or "cuda". */
#include "base/choices.h"
#include "partition/drafting.h"
#include "rank/instance/instance.h"
#include "rank/world/fatal.h"
#include "tests/support/files.h"
#include "tests/support/tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_SEQS 32 /* also the most rows of logits of a head's step */
#define SLOT   2
#define OTHER  1 /* a slot with another sequence, in the same steps */

static int32_t device = DEVICE_CPU;

struct expected {
    char *file;
    int n_prompt, n_drafts, vocab;
    const int32_t *prompt, *drafts;
    const float *logits, *draft_logits;
};

struct run {
    struct expected x;
    struct instance model;
    struct draft_model draft;
    struct plan plan;
    uint64_t step;
    double worst; /* largest difference of a logit */
    int n_right;  /* correct drafts */
};

static struct expected read_expected(const char *dir)
{
    struct expected x = {0};
    size_t bytes;
    long shape[2];
    x.file = files_read(dir, "expected.safetensors", &bytes);
    x.prompt = files_tensor(x.file, bytes, "prompt", shape);
    x.n_prompt = (int)shape[0];
    x.logits = files_tensor(x.file, bytes, "logits", shape);
    x.vocab = (int)shape[1];
    x.drafts = files_tensor(x.file, bytes, "drafts", shape);
    x.n_drafts = (int)shape[0];
    x.draft_logits = files_tensor(x.file, bytes, "draft_logits", shape);
    if (x.prompt == NULL || x.logits == NULL || x.drafts == NULL || x.draft_logits == NULL)
        exit(98);
    return x;
}

/* Opens the config and checkpoint of the draft head. */
static int open_head(struct draft_model *d, const struct model_config *m, const char *head, const char *dir,
                     struct err *e)
{
    if (strncmp(head, "mtp", 3) == 0)
        return model_predicting(&d->config, m, head, e) == 0 ? checkpoint_open(&d->checkpoint, dir, e) : -1;
    if (model_config_read(&d->config, dir, e) != 0 || checkpoint_open(&d->checkpoint, dir, e) != 0 ||
        drafting_read(&d->checkpoint, &d->config, e) != 0)
        return -1;
    return model_draft_for(&d->config, m, head, e);
}

static void open_run(struct run *r, struct world *w, const char *model, const char *head)
{
    char dir[256], head_dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = {.limits = {.max_seqs = N_SEQS,
                                              .max_batch_tokens = 48,
                                              .max_len = 64,
                                              .max_logit_rows = N_SEQS,
                                              .n_blocks = 40,
                                              .draft_len = 64,
                                              .draft_skip = 1},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .device = device,
                                   .progress = PROGRESS_NEVER};
    (void)snprintf(dir, sizeof dir, "tests/parity/fixtures/%s", model);
    (void)snprintf(head_dir, sizeof head_dir, "tests/parity/heads/%s", head);
    r->x = read_expected(head_dir);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0 && checkpoint_open(&c, dir, &e) == 0)
        (void)open_head(&r->draft, &m, head, head_dir, &e);
    fatal_agree(w, &e);
    instance_open_drafted(&r->model, &r->draft, w, &m, &c, &setup, &e);
    if (plan_open(&r->plan, &r->model.engine.limits, &e) != 0)
        fatal(&e);
}

static void start_sequence(struct plan *p, int slot, int n_blocks)
{
    p->start[p->n_starts++] =
        (struct plan_start){.slot = slot, .sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = 20}};
    for (int i = 0; i < 4; i++) /* in descending order, so that code that ignores the table fails */
        p->block[p->n_blocks++] = (struct plan_block){slot, i, n_blocks - 1 - 4 * slot - i, KV_MAIN};
}

/* Puts n tokens of the prompt from `first` on at positions from `pos` on; the other sequence gets the same tokens
 * backwards. */
static void feed(const struct expected *x, struct plan *p, int first, int pos, int n, int n_logits, int sample)
{
    p->seq[p->n_seqs++] = (struct plan_seq){OTHER, n, pos, 20, 0, 0, MASK_NONE};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = x->prompt[x->n_prompt - 1 - first - i];
    p->seq[p->n_seqs++] = (struct plan_seq){SLOT, n, pos, 20, n_logits, sample, MASK_NONE};
    for (int i = 0; i < n; i++)
        p->token[p->n_tokens++] = x->prompt[first + i];
}

static void compare(struct run *r, const struct instance *i, const struct step_result *s, const float *want, int n)
{
    size_t vocab = (size_t)r->x.vocab, row = vocab * dtype_bytes(i->q.act);
    unsigned char *in = malloc((size_t)n * row + 1);
    i->ops->download(&r->draft.instance.q, in, s->logits, (size_t)n * row);
    i->ops->wait(&r->draft.instance.q);
    for (int k = 0; k < n; k++)
        for (size_t c = 0; c < vocab; c++) {
            double d = fabs(dtype_load(in + (size_t)k * row, i->q.act, c) - want[(size_t)k * vocab + c]);
            r->worst = d <= r->worst ? r->worst : isfinite(d) ? d : INFINITY;
        }
    free(in);
}

static void next(struct run *r, int model)
{
    plan_reset(&r->plan, r->step++);
    r->plan.model = model;
}

/* Feeds the whole prompt in chunks of `chunk` tokens. */
static void feed_model(struct run *r, int chunk)
{
    struct step_result result;
    for (int pos = 0, n; pos < r->x.n_prompt; pos += n) {
        n = r->x.n_prompt - pos < chunk ? r->x.n_prompt - pos : chunk;
        next(r, 0);
        for (int slot = OTHER; pos == 0 && slot <= SLOT; slot++)
            start_sequence(&r->plan, slot, 40);
        feed(&r->x, &r->plan, pos, pos, n, 0, 0);
        engine_step(&r->model.engine, &r->plan, &result);
    }
}

/* Feeds token p + 1 at position p; the last one determines the first draft. */
static void feed_head(struct run *r, int chunk)
{
    struct step_result result;
    struct engine *g = &r->draft.instance.engine;
    int end = r->x.n_prompt - 1;
    for (int pos = 0, n; pos < end; pos += n) {
        n = pos == end - 1 ? 1 : end - 1 - pos < chunk ? end - 1 - pos : chunk;
        next(r, PLAN_DRAFT_MODEL);
        for (int slot = OTHER; pos == 0 && slot <= SLOT; slot++)
            start_sequence(&r->plan, slot, 20);
        feed(&r->x, &r->plan, pos + 1, pos, n, n, pos == end - 1);
        engine_step(g, &r->plan, &result);
        compare(r, &r->draft.instance, &result, r->x.logits + (size_t)pos * (size_t)r->x.vocab, n);
    }
    r->n_right = result.n_sampled == 1 && result.sampled[0].token == r->x.drafts[0];
}

/* Makes drafts that never leave the device; the token of the last one is not among the expected ones. */
static void draft(struct run *r)
{
    struct step_result result;
    for (int k = 0; k < r->x.n_drafts; k++) {
        next(r, PLAN_DRAFT_MODEL);
        r->plan.seq[r->plan.n_seqs++] = (struct plan_seq){SLOT, 1, r->x.n_prompt - 1 + k, 20, 1, 1, MASK_NONE};
        r->plan.token[r->plan.n_tokens++] = -1;
        engine_step(&r->draft.instance.engine, &r->plan, &result);
        compare(r, &r->draft.instance, &result, r->x.draft_logits + (size_t)k * (size_t)r->x.vocab, 1);
        if (k + 1 < r->x.n_drafts)
            r->n_right += result.sampled[0].token == r->x.drafts[k + 1];
    }
}

static void check_head(struct world *w, const char *model, const char *head)
{
    static const int chunks[][2] = {{22, 22}, {5, 3}, {1, 1}, {7, 16}};
    struct run *r = calloc(1, sizeof *r);
    char reason[100];
    double allowed = 1e-4;
    open_run(r, w, model, head);
    if (device == DEVICE_CUDA) /* it computes in 16 bits: a hundredth of the largest logit */
        for (int i = 0; i < (r->x.n_prompt - 1) * r->x.vocab; i++)
            allowed = fmax(allowed, 0.01 * fabs(r->x.logits[i]));
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        r->worst = 0;
        feed_model(r, chunks[i][0]);
        feed_head(r, chunks[i][1]);
        draft(r);
        snprintf(reason, sizeof reason, "logits differ by %g, %d drafts of %d", r->worst, r->n_right, r->x.n_drafts);
        tap_all(r->worst < allowed && r->n_right == r->x.n_drafts, reason,
                "%s for %s, %d ranks, chunks of %d and %d: logits and drafts (%.1e)", head, model, w->n_ranks,
                chunks[i][0], chunks[i][1], r->worst);
    }
    plan_close(&r->plan);
    instance_close(&r->draft.instance);
    instance_close(&r->model);
    free(r->x.file);
    free(r);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    if (argc > 1)
        device = strcmp(argv[1], "cuda") == 0 ? DEVICE_CUDA : DEVICE_CPU;
    check_head(&w, "llama-f16", "eagle3-llama");
    check_head(&w, "qwen3-f16", "eagle3-speculators-qwen3");
    check_head(&w, "glm4moe-groups", "mtp-glm4moe-groups");
    check_head(&w, "deepseek3-f16", "mtp-deepseek3");
    int status = tap_done();
    world_close(&w);
    return status;
}
