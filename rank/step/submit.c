/* rank/step/submit.c - submits steps to the device, chooses their tokens, and takes their results. See
 * engine.h. */
#include "rank/step/graphs.h"
#include "rank/step/step.h"
#include "rank/step/step_inputs.h"
#include "rank/world/fatal.h"

/* Does each sequence feed one token and get one? */
static bool is_decode(const struct step_flight *f, const struct plan *p)
{
    return p->n_seqs > 0 && p->n_tokens == p->n_seqs && f->n_sampled == p->n_seqs && f->n_rows == p->n_seqs;
}

/* The number of sequences at the beginning of the plan that feed one token each. */
static int count_alone(const struct plan *p)
{
    int n = 0;
    while (n < p->n_seqs && p->seq[n].n_tokens == 1)
        n++;
    return n;
}

/* A size that was not recorded when the engine was opened, or has the clocks of a profile: per flight the first step
 * runs without a graph, and the second one is recorded. */
static void run_shape(struct engine *g, int which, const struct plan *p, struct decode_graph *graph)
{
    const struct step_flight *f = &g->flight[which];
    if (graph != NULL && graph->graph[which] == NULL && graph->n_runs[which]++ > 0)
        graphs_record(g, graph, which);
    if (graph == NULL) {
        const struct step_shape shape = {p->n_tokens, count_alone(p), f->n_rows,     f->n_sampled,
                                         f->n_scored, p->n_late > 0,  p->shares > 0, 0};
        step_execute(g, f, &shape, false);
        return;
    }
    if (graph->graph[which] == NULL) {
        const struct step_shape shape = step_shape_of(graph);
        step_execute(g, f, &shape, graph->persistent);
        return;
    }
    g->ops->async->launch_graph(g->q, graph->graph[which]);
    g->comm.n_all_reduces += graph->n_all_reduces;
}

int engine_flights(const struct engine *g)
{
    return g->n_flights;
}

void engine_align(struct engine *g, uint64_t step)
{
    if (g->n_steps == g->n_taken)
        g->shift = (step + ENGINE_FLIGHTS - g->n_steps % ENGINE_FLIGHTS) % ENGINE_FLIGHTS;
}

/* The tokens of the plan's longest sequence. */
static int longest(const struct plan *p)
{
    int most = 0;
    for (int i = 0; i < p->n_seqs; i++)
        most = p->seq[i].pos + p->seq[i].n_tokens > most ? p->seq[i].pos + p->seq[i].n_tokens : most;
    return most;
}

/* The graphs of a decode step that does not leave its tokens to engine_choose. */
static enum decode_kind kind_of(const struct engine *g, const struct plan *p, bool persistent)
{
    if (persistent)
        return g->persistent.longest > 0 && longest(p) > g->persistent.longest ? DECODE_LONG : DECODE_WHOLE;
    return longest(p) <= g->short_tokens ? DECODE_SHORT : DECODE_WHOLE;
}

/* A profile's clocks end with the tokens, so with a profile a step with late masks runs without a graph. So does a step
 * whose sequences share prefixes: it is long enough to hide its launches. */
static struct decode_graph *find_decode(const struct engine *g, const struct plan *p)
{
    if (p->shares > 0)
        return NULL;
    if (g->profiled)
        return p->n_late > 0 ? NULL : graphs_find(g, p->n_seqs, DECODE_PROFILED);
    struct decode_graph *graph = graphs_find(g, p->n_seqs, p->n_late > 0 ? DECODE_LATE : DECODE_WHOLE);
    enum decode_kind kind = graph != NULL ? kind_of(g, p, graph->persistent) : DECODE_WHOLE;
    if (p->n_late > 0)
        return kind == DECODE_LONG ? NULL : graph;
    return graphs_find(g, p->n_seqs, kind);
}

/* The graph for a step of a few tokens with several of a sequence: drafts to be verified, or the end of a prompt.
 * Unneeded rows of logits cost nothing if one operation reads the head once. */
static struct decode_graph *find_small(const struct engine *g, const struct step_flight *f, const struct plan *p)
{
    bool all = f->n_sampled == p->n_tokens, can = g->persistent.several && (all || p->n_masks == 0);
    if (p->n_tokens > PERSISTENT_MAX_TOKENS || f->n_sampled == 0 || f->n_sampled != f->n_rows || p->n_late > 0 ||
        g->profiled)
        return NULL;
    struct decode_graph *graph = graphs_find(g, p->n_tokens, DECODE_WHOLE);
    if (graph != NULL && graph->persistent)
        return can ? graph : NULL;
    return all ? graphs_find(g, p->n_tokens, DECODE_MIXED) : NULL;
}

void engine_submit(struct engine *g, const struct plan *p)
{
    int which = (int)((g->n_steps + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    if (g->elsewhere) {
        f->step = p->step;
        g->n_steps++;
        return;
    }
    step_list_rows(f, p);
    bool decode = is_decode(f, p);
    struct decode_graph *graph = decode ? find_decode(g, p) : find_small(g, f, p);
    const struct observed_step observed = {
        .plan = p,
        .flight = which,
        .kind = decode            ? STEP_DECODE
                : p->n_tokens > 0 ? STEP_PREFILL
                                  : STEP_EMPTY,
        .graph = graph != NULL,
    };
    ops_range_begin(g->ops, decode ? "decode" : "prefill", p->n_tokens);
    step_prepare_flight(g, f, p, graph);
    observers_tell(&g->observers, submit, &observed);
    run_shape(g, which, p, graph);
    observers_tell(&g->observers, submitted);
    if (g->ops->async != NULL)
        g->ops->async->mark(g->q, which);
    ops_range_end(g->ops);
    g->n_steps++;
}

void engine_choose(struct engine *g, const struct plan *p)
{
    int which = (int)((g->n_steps - 1 + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    step_upload_masks(g, f, p, MASK_LATE);
    bool waited = g->ops->async != NULL && g->ops->async->passed(g->q, which);
    g->n_late++;
    g->n_waited += waited;
    observers_tell(&g->observers, chosen, waited);
    step_choose(g, f, f->n_sampled, f->n_scored);
    if (g->ops->async != NULL)
        g->ops->async->mark(g->q, which);
}

/* Gathers the rows from which tokens are sampled. */
static void gather_sampled(struct step_flight *f)
{
    for (int row = 0, n = 0; n < f->n_sampled; row++)
        if (f->host.row_slot[row] >= 0)
            f->sampled[n++] = f->sampled[row];
}

void engine_take(struct engine *g, struct step_result *result)
{
    int which = (int)((g->n_taken + g->shift) % ENGINE_FLIGHTS);
    struct step_flight *f = &g->flight[which];
    if (g->elsewhere) {
        *result = (struct step_result){.step = f->step};
        g->n_taken++;
        return;
    }
    if (g->ops->async != NULL)
        g->ops->async->wait_mark(g->q, which);
    else
        g->ops->wait(g->q);
    observers_tell(&g->observers, finished, which);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
    if (f->spread)
        gather_sampled(f);
    *result = (struct step_result){.step = f->step,
                                   .n_sampled = f->n_sampled,
                                   .sampled = f->sampled,
                                   .n_rows = f->n_rows,
                                   .logits = f->spread ? NULL : g->logits,
                                   .n_scored = f->n_scored,
                                   .scored = f->sampled + f->n_sampled};
    g->n_taken++;
}

void engine_step(struct engine *g, const struct plan *p, struct step_result *result)
{
    engine_submit(g, p);
    engine_take(g, result);
}
