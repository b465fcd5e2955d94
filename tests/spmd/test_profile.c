/* tests/spmd/test_profile.c - rank/measure/profile.c: the phases of a step add up to it, and profiling changes no
 * token. */
#include "base/clock.h"
#include "rank/instance/instance.h"
#include "rank/measure/profile.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <stdio.h>
#include <string.h>

#define N_SEQS  3
#define PROMPT  12
#define N_STEPS 20 /* decode steps */

struct run {
    struct instance instance;
    struct plan plan;
    struct world *w;
    uint64_t step;
    int32_t token[N_STEPS + 1][N_SEQS];
    double seconds;                /* in steps */
    const struct profile *profile; /* NULL: steps are not profiled */
    double in_phases, best;        /* seconds of the profile so far; the largest share of a step in phases */
};

static double total(const struct profile_sums *s)
{
    double sum = 0;
    for (int i = 0; i < N_PHASES; i++)
        sum += s->seconds[i];
    return sum;
}

/* Between phases another process may get the core for longer than a step takes: at least one step is free of that. */
static void count_phases(struct run *r, double seconds)
{
    double sum = total(&r->profile->sums[STEP_PREFILL]) + total(&r->profile->sums[STEP_DECODE]);
    double share = (sum - r->in_phases) / seconds;
    r->in_phases = sum;
    r->best = share > r->best ? share : r->best;
}

static void step(struct run *r, int pos, int32_t *out)
{
    struct plan *p = &r->plan;
    struct step_result result;
    int n = pos == 0 ? PROMPT : 1;
    plan_reset(p, r->step++);
    for (int slot = 0; slot < N_SEQS && r->w->rank == 0; slot++) {
        if (pos == 0) {
            p->start[p->n_starts++] = (struct plan_start){
                .slot = slot, .sampling = {.top_p = 1, .repetition_penalty = 1, .prompt_len = PROMPT}};
            for (int i = 0; i < limits_blocks_per_slot(&p->limits); i++)
                p->block[p->n_blocks++] = (struct plan_block){slot, i, i * N_SEQS + slot, KV_MAIN};
        }
        p->seq[p->n_seqs++] = (struct plan_seq){slot, n, pos, pos + n, 1, 1, 0};
        for (int i = 0; i < n; i++)
            p->token[p->n_tokens++] = pos == 0 ? (3 * i + slot) % 50 : -1;
    }
    loop_share(p, r->w, r->instance.network.config.vocab);
    double started = seconds_now();
    engine_step(&r->instance.engine, p, &result);
    double seconds = seconds_now() - started;
    r->seconds += seconds;
    if (r->profile != NULL)
        count_phases(r, seconds);
    for (int i = 0; i < result.n_sampled; i++)
        out[i] = result.sampled[i].token;
}

static void generate(struct run *r)
{
    r->seconds = 0;
    step(r, 0, r->token[0]);
    for (int i = 0; i < N_STEPS; i++)
        step(r, PROMPT + i, r->token[i + 1]);
}

/* Every phase that exists on this number of ranks took time, the others none. */
static bool phases_fit(const struct profile_sums *s, int n_ranks)
{
    bool fit = true;
    for (int i = 0; i < N_PHASES; i++) {
        bool alone = (i == PHASE_ALL_REDUCE || i == PHASE_ALL_GATHER) && n_ranks == 1;
        fit = fit && (s->seconds[i] > 0) == !alone;
    }
    return fit;
}

static void check_model(struct world *w, const char *dir)
{
    struct run r = {.w = w};
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct profile p;
    struct instance_setup setup = {.limits = {.max_seqs = N_SEQS,
                                              .max_batch_tokens = N_SEQS * PROMPT,
                                              .max_len = 48,
                                              .max_logit_rows = N_SEQS,
                                              .n_blocks = 3 * N_SEQS},
                                   .kv_bytes = -1,
                                   .threads = 1,
                                   .progress = PROGRESS_NEVER};
    char reason[160];
    int32_t unwatched[N_STEPS + 1][N_SEQS];
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0)
        (void)checkpoint_open(&c, dir, &e);
    fatal_agree(w, &e);
    instance_open(&r.instance, w, &m, &c, &setup, &e);
    if (plan_open(&r.plan, &setup.limits, &e) != 0)
        fatal(&e);
    generate(&r);
    memcpy(unwatched, r.token, sizeof unwatched);
    const struct ops *ops = r.instance.engine.ops;
    if (profile_open(&p, &r.instance.engine, &e) != 0)
        fatal(&e);
    generate(&r);
    profile_reset(&p);
    r.profile = &p;
    generate(&r);
    r.profile = NULL;
    plan_reset(&r.plan, r.step++); /* an empty step is not counted */
    struct step_result nothing;
    engine_step(&r.instance.engine, &r.plan, &nothing);
    const struct profile_sums *prefill = &p.sums[STEP_PREFILL], *decode = &p.sums[STEP_DECODE];
    tap_all(memcmp(unwatched, r.token, sizeof unwatched) == 0, "the tokens differ", "%s, %d ranks: the same tokens",
            dir, w->n_ranks);
    snprintf(reason, sizeof reason, "%d prefill and %d decode steps", (int)prefill->n_steps, (int)decode->n_steps);
    tap_all(prefill->n_steps == 1 && decode->n_steps == N_STEPS, reason, "%s, %d ranks: steps by kind", dir,
            w->n_ranks);
    tap_all(phases_fit(prefill, w->n_ranks) && phases_fit(decode, w->n_ranks),
            "a phase without time, or an unexpected one", "%s, %d ranks: every phase has its time", dir, w->n_ranks);
    snprintf(reason, sizeof reason, "%.6f s in phases, %.6f s in steps; at most %.2f of a step", r.in_phases, r.seconds,
             r.best);
    tap_all(r.in_phases <= r.seconds && r.best > 0.3, reason, "%s, %d ranks: phases add up to steps", dir, w->n_ranks);
    profile_close(&p);
    generate(&r);
    tap_all(r.instance.engine.ops == ops && !r.instance.engine.profiled && r.instance.q.observer == NULL &&
                memcmp(unwatched, r.token, sizeof unwatched) == 0,
            "the profile is still active", "%s, %d ranks: nothing remains afterwards", dir, w->n_ranks);
    plan_close(&r.plan);
    instance_close(&r.instance);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    check_model(&w, "tests/parity/fixtures/llama-14-2-gelu");
    check_model(&w, "tests/parity/fixtures/gptj-3h");
    check_model(&w, "tests/parity/fixtures/opt-350m-noprefix");
    check_model(&w, "tests/parity/fixtures/bloom-8h");
    int status = tap_done();
    world_close(&w);
    return status;
}
