/* commands/bench/workload.c - see bench_workload.h. Random token ids throughout. PP and TG choose the likeliest token,
 * as llama-bench samples nothing; LATENCY samples at temperature 1 and ignores the end of text, as vLLM does. */
#include "commands/bench/workload.h"
#include "base/clock.h"
#include "commands/bench/windows.h"
#include "rank/step/loop.h"
#include "rank/world/fatal.h"

#include <string.h>

struct workload_run {
    enum workload_kind kind;
    const struct workload *work;
    struct bench_rig *rig;
    struct limits limits;
    struct windows windows;
    int vocab, repetition, repetitions;
    bool begun;                          /* this repetition */
    int64_t fed, done;                   /* its progress: prompt tokens, then decode steps; planned, and accepted */
    int64_t planned[ENGINE_FLIGHTS + 1]; /* `fed` after each of the steps in flight; -1: it feeds nothing */
    double started, prompts_done;        /* prompts_done: 0 before */
    struct planned_step {                /* under way */
        bool timed;                      /* has tokens, and is not the draft model's */
        enum step_load load;
        double planned; /* when */
    } step[ENGINE_FLIGHTS + 1];
    double accepted; /* when the newest results came */
    struct repetitions *samples;
};

static int64_t prompt_tokens(const struct workload_run *r)
{
    return (int64_t)r->work->n_seqs * r->work->n_prompt;
}

static void finish_repetition(struct workload_run *r)
{
    static const char *const name[N_WORKLOADS] = {"prompts", "tokens", "latency", "throughput"};
    struct repetitions *s = r->samples;
    double now = seconds_now();
    s->total[s->n] = now - r->started;
    s->decode[s->n] = now - r->prompts_done;
    s->n++;
    r->repetition++;
    r->begun = false;
    r->fed = r->done = 0;
    r->prompts_done = 0;
    progress_update(&r->rig->bar, ++r->rig->n_done, name[r->kind]);
}

/* A prompt's tokens are fed without a row for each; those of sequences that decode are not. */
static enum step_load load_of(const struct plan *p)
{
    for (int i = 0; i < p->n_seqs; i++)
        if (p->seq[i].n_tokens > p->seq[i].sample)
            return STEPS_WITH_PROMPTS;
    return STEPS_DECODE;
}

static void count_step(struct workload_run *r, const struct plan *p)
{
    bool works = p->n_tokens > 0 && p->model != PLAN_DRAFT_MODEL;
    r->step[p->step % (ENGINE_FLIGHTS + 1)] = (struct planned_step){works, load_of(p), seconds_now()};
    if (!works)
        return;
    r->samples->n_steps++;
    r->samples->most_seqs = p->n_seqs > r->samples->most_seqs ? p->n_seqs : r->samples->most_seqs;
}

/* The step's results have arrived. It began when the preceding one's arrived, or when it was planned. */
static void time_step(struct workload_run *r, const struct step_result *result)
{
    const struct planned_step *step = &r->step[result->step % (ENGINE_FLIGHTS + 1)];
    double now = seconds_now(), began = step->planned > r->accepted ? step->planned : r->accepted;
    r->accepted = now;
    if (step->timed)
        durations_add(&r->samples->steps.of[step->load], now - began);
}

static void start_all(const struct workload_run *r, struct plan *p)
{
    int n_blocks = limits_blocks_per_slot(&r->limits);
    for (int s = 0; s < r->work->n_seqs; s++) {
        p->start[p->n_starts++] = (struct plan_start){.slot = s,
                                                      .sampling = {.seed = (uint64_t)s,
                                                                   .temperature = r->kind == WORK_LATENCY,
                                                                   .top_p = 1,
                                                                   .repetition_penalty = 1,
                                                                   .prompt_len = r->work->n_prompt}};
        for (int i = 0; i < n_blocks; i++)
            p->block[p->n_blocks++] = (struct plan_block){s, i, s * n_blocks + i, KV_MAIN};
    }
}

/* Feeds the part of the prompts that fits into a step. */
static void feed_prompts(struct workload_run *r, struct plan *p)
{
    int n_prompt = r->work->n_prompt;
    while (r->fed < prompt_tokens(r) && p->n_tokens < r->limits.max_batch_tokens) {
        int seq = (int)(r->fed / n_prompt), pos = (int)(r->fed % n_prompt), left = n_prompt - pos;
        int room = r->limits.max_batch_tokens - p->n_tokens, n = left < room ? left : room, last = n == left;
        windows_feed(&r->windows, seq, pos, n, p);
        p->seq[p->n_seqs++] = (struct plan_seq){seq, n, pos, n_prompt, last, last, 0};
        for (int i = 0; i < n; i++)
            p->token[p->n_tokens++] = (int32_t)((r->fed + i) * 7919 % r->vocab);
        r->fed += n;
    }
}

/* One more token of every sequence: the one sampled last, or the first. */
static void feed_decode(struct workload_run *r, struct plan *p)
{
    int pos = r->work->n_prompt + (int)(r->fed - prompt_tokens(r));
    for (int s = 0; s < r->work->n_seqs; s++) {
        windows_feed(&r->windows, s, pos, 1, p);
        p->seq[p->n_seqs++] = (struct plan_seq){s, 1, pos, pos + 1, 1, 1, 0};
        p->token[p->n_tokens++] = pos == 0 ? s * 7919 % r->vocab : -1;
    }
    r->fed++;
}

/* The batch of PP, TG and LATENCY: the same steps in every repetition. */
static void next_of_batch(struct workload_run *r, struct plan *p)
{
    int64_t prompts = prompt_tokens(r);
    int64_t *planned = &r->planned[p->step % (ENGINE_FLIGHTS + 1)];
    bool begins = !r->begun, before_decode = r->kind == WORK_TG && r->fed == prompts && r->begun;
    *planned = -1;
    if (r->fed == prompts + r->work->n_steps || (before_decode && r->done < r->fed))
        return; /* the clock stops after the results of steps in flight */
    if (before_decode || (begins && r->kind != WORK_TG))
        r->started = seconds_now();
    if (begins) {
        start_all(r, p);
        r->begun = true;
    }
    if (r->fed < prompts)
        feed_prompts(r, p);
    else if (!begins)
        feed_decode(r, p);
    *planned = r->fed;
}

static void accept_of_batch(struct workload_run *r, const struct step_result *result)
{
    int64_t fed = r->planned[result->step % (ENGINE_FLIGHTS + 1)], prompts = prompt_tokens(r);
    if (fed < 0)
        return;
    r->done = fed;
    if (fed >= prompts && r->prompts_done == 0)
        r->prompts_done = seconds_now();
    if (fed == prompts + r->work->n_steps)
        finish_repetition(r);
}

static int next_of_traffic(struct workload_run *r, struct plan *p, struct err *e)
{
    struct traffic *t = r->rig->traffic;
    if (!r->begun) {
        traffic_renew(t);
        r->begun = true;
        r->started = seconds_now();
        if (traffic_queue(t, r->started, e) != 0)
            return -1;
    }
    traffic_plan(t, p, seconds_now());
    return 0;
}

static int accept_of_traffic(struct workload_run *r, const struct step_result *result, struct err *e)
{
    if (traffic_accept(r->rig->traffic, result, seconds_now(), e) != 0)
        return -1;
    if (r->begun && !traffic_busy(r->rig->traffic))
        finish_repetition(r);
    return 0;
}

static int next_plan(void *context, struct plan *p, struct err *e)
{
    struct workload_run *r = context;
    int rc = 0;
    if (r->repetition == r->repetitions)
        p->kind = PLAN_STOP;
    else if (r->kind == WORK_THROUGHPUT)
        rc = next_of_traffic(r, p, e);
    else
        next_of_batch(r, p);
    count_step(r, p);
    return rc;
}

static int accept_result(void *context, const struct step_result *result, struct err *e)
{
    struct workload_run *r = context;
    time_step(r, result);
    if (r->kind == WORK_THROUGHPUT)
        return accept_of_traffic(r, result, e);
    accept_of_batch(r, result);
    return 0;
}

static void masks(void *context, struct plan *p)
{
    traffic_masks(((struct workload_run *)context)->rig->traffic, p);
}

void workload_run(struct bench_rig *rig, enum workload_kind kind, const struct workload *work, int repetitions,
                  struct repetitions *s, struct err *e)
{
    struct workload_run r = {.kind = kind,
                             .work = work,
                             .rig = rig,
                             .limits = rig->engine->limits,
                             .vocab = rig->engine->network->config.vocab,
                             .repetitions = repetitions,
                             .samples = s};
    const struct loop_client client = {.context = &r, .next = next_plan, .accept = accept_result, .masks = masks};
    memset(s, 0, sizeof *s);
    memset(&rig->traffic->waits, 0, sizeof rig->traffic->waits);
    if (windows_open(&r.windows, &r.limits, e) != 0)
        fatal(e);
    instance_run(rig->instance, rig->draft_model, &client, e);
    if (kind == WORK_THROUGHPUT)
        s->waits = rig->traffic->waits;
    windows_close(&r.windows);
}
