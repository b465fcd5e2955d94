/* rank/measure/meter.c - see meter.h. */
#include "rank/measure/meter.h"
#include "base/clock.h"
#include "rank/world/fatal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a step ---- */

static void stamp(struct meter *m, enum meter_part part)
{
    struct queue *q = m->engine->q;
    struct meter_flight *f = &m->flight[m->which];
    if (f->n == m->max_stamps) {
        ERR(&q->err, ERR_INTERNAL, "a step has more than %d collectives", m->max_stamps / 2 - 1);
        return;
    }
    f->part[f->n] = (unsigned char)part;
    m->async->stamp(q, m->which, f->n);
    f->n++;
}

/* Begins this part of the step. */
static void change(struct meter *m, enum meter_part part)
{
    struct meter_flight *f = &m->flight[m->which];
    double now = 0;
    if (m->async != NULL) {
        stamp(m, part);
        return;
    }
    now = seconds_now();
    f->seconds[f->now] += now - f->since;
    f->since = now;
    f->now = part;
}

static void begin_step(struct observer *o, const struct observed_step *step)
{
    struct meter *m = (struct meter *)o;
    struct meter_flight *f = &m->flight[step->flight];
    f->works = step->plan->n_tokens > 0;
    f->report = step->plan->report != 0;
    f->timed = f->works && (m->async == NULL || f->report);
    f->parts = f->timed && !step->graph;
    f->n = 0;
    memset(f->seconds, 0, sizeof f->seconds);
    f->now = METER_COMPUTE;
    f->since = seconds_now();
    m->which = step->flight;
    m->in_collective = false;
    m->open = f->timed;
    if (m->open)
        change(m, METER_COMPUTE);
}

static void begin_collective(struct observer *o, enum collective kind)
{
    struct meter *m = (struct meter *)o;
    if (!m->open || !m->flight[m->which].parts)
        return;
    m->in_collective = true;
    change(m, kind == COLLECTIVE_ALL_REDUCE ? METER_ALL_REDUCE : METER_ALL_GATHER);
}

static void change_activity(struct observer *o, enum rank_activity activity)
{
    struct meter *m = (struct meter *)o;
    if (activity == RANK_WORKS && m->in_collective)
        change(m, METER_COMPUTE);
    m->in_collective = false;
}

static void end_step(struct observer *o)
{
    struct meter *m = (struct meter *)o;
    if (!m->open)
        return;
    change(m, METER_COMPUTE);
    m->open = false;
}

static void take_masks(struct observer *o, bool waited)
{
    struct rank_stats *s = &((struct meter *)o)->stats;
    s->n_late++;
    s->n_waited += waited;
}

static void add_step(struct meter *m, const struct meter_flight *f)
{
    struct rank_stats *s = &m->stats;
    double whole = 0;
    for (int i = 0; i < METER_PARTS; i++)
        whole += f->seconds[i];
    s->n_timed++;
    s->step_seconds += whole;
    if (!f->parts)
        return;
    s->n_parted++;
    s->parted_seconds += whole;
    s->all_reduce_seconds += f->seconds[METER_ALL_REDUCE];
    s->all_gather_seconds += f->seconds[METER_ALL_GATHER];
}

static void take_step(struct observer *o, int which)
{
    struct meter *m = (struct meter *)o;
    struct meter_flight *f = &m->flight[which];
    m->stats.n_steps += f->works;
    if (f->timed && m->async != NULL) {
        m->async->read_stamps(m->engine->q, which, f->n, m->between);
        for (int i = 0; i + 1 < f->n; i++)
            f->seconds[f->part[i]] += m->between[i];
    }
    if (f->timed)
        add_step(m, f);
    m->pending = m->pending || f->report;
    f->works = f->timed = f->report = false;
}

/* ---- transfer to rank 0 ---- */

/* Does this model run on some of the ranks only? */
static bool is_partial(const struct meter *m, int model)
{
    return m->engine->limits.draft_ranks > 0 && model == PLAN_DRAFT_MODEL;
}

static void ask_for_figures(struct observer *o, struct plan *p)
{
    struct meter *m = (struct meter *)o;
    if (is_partial(m, p->model))
        return;
    if (m->pending || m->request != MPI_REQUEST_NULL || p->n_tokens == 0)
        return;
    for (int f = 0; f < ENGINE_FLIGHTS; f++)
        if (m->flight[f].report)
            return;
    double now = seconds_now();
    /* On a GPU only steps other than pure decoding show their parts: now and then the first such step is measured,
     * too. */
    bool parts = m->async == NULL || p->n_tokens > p->n_seqs;
    if (now - m->last_report < m->interval && !(parts && now - m->last_parts >= m->interval))
        return;
    p->report = 1;
    m->last_report = now;
    if (parts)
        m->last_parts = now;
}

static void digest_tokens(struct observer *o, const struct step_result *result)
{
    struct meter *m = (struct meter *)o;
    m->n_taken = result->step + 1;
    for (int i = 0; i < result->n_sampled && !is_partial(m, result->model); i++)
        rank_stats_digest(&m->stats, result->sampled[i].slot, result->sampled[i].token);
}

static void check_tokens(const struct meter *m, int n)
{
    struct err e = {0};
    const struct world *w = m->engine->world;
    bool known = false;
    int rank = rank_stats_diverged(m->gathered, n, &known);
    if (rank < 0)
        return;
    unsigned long long step = m->n_taken;
    int first = w->job_rank - w->rank;
    if (known)
        ERR(&e, ERR_DEVICE,
            "its tokens differ from those of the other ranks since one of the last steps before step %llu: its device, "
            "its memory, or a library that differs",
            step);
    else
        ERR(&e, ERR_DEVICE,
            "its tokens differ from those of rank %d since one of the last steps before step %llu; it is not known "
            "which of the two is wrong: a device, its memory, or a library that differs",
            first, step);
    fatal_of(first + rank, m->gathered[rank].host, &e);
}

static void deliver(struct meter *m)
{
    int n = m->engine->world->n_ranks;
    check_tokens(m, n);
    for (int r = 0; r < n; r++)
        m->recent[r] = rank_stats_since(&m->gathered[r], &m->total[r]);
    memcpy(m->total, m->gathered, (size_t)n * sizeof *m->total);
    const struct rank_report report = {n, m->total, m->recent, rank_stats_slowest(m->recent, n)};
    if (m->report != NULL)
        m->report(m->context, &report);
}

static void complete(struct meter *m, bool wait)
{
    int done = 1;
    if (m->request == MPI_REQUEST_NULL)
        return;
    if (wait)
        MPI_CHECK(MPI_Wait(&m->request, MPI_STATUS_IGNORE));
    else
        MPI_CHECK(MPI_Test(&m->request, &done, MPI_STATUS_IGNORE));
    if (done && m->engine->world->rank == 0)
        deliver(m);
}

static void send_stats(struct meter *m)
{
    int bytes = (int)sizeof m->sent;
    m->stats.joules = energy_joules(&m->energy);
    m->sent = m->stats;
    m->pending = false;
    MPI_CHECK(
        MPI_Igather(&m->sent, bytes, MPI_BYTE, m->gathered, bytes, MPI_BYTE, 0, m->engine->world->comm, &m->request));
}

static void hear(struct observer *o)
{
    complete((struct meter *)o, false);
}

/* Sends due figures and receives arrived ones without blocking; at the end of the loop it completes all transfers. */
static void share(struct observer *o, bool last)
{
    struct meter *m = (struct meter *)o;
    /* Rank 0 asks again only after it has received everything, so other ranks' earlier gathers are complete. */
    complete(m, last || m->pending);
    if (!last && !m->pending)
        return;
    send_stats(m);
    complete(m, last);
}

/* ---- opening and closing ---- */

static const struct observer_hooks hooks = {
    .activity = change_activity,
    .collective = begin_collective,
    .plan = ask_for_figures,
    .tokens = digest_tokens,
    .between_steps = share,
    .idle = hear,
    .submit = begin_step,
    .submitted = end_step,
    .chosen = take_masks,
    .finished = take_step,
};

int meter_open(struct meter *m, struct engine *g, double interval,
               void (*report)(void *context, const struct rank_report *r), void *context, struct err *e)
{
    size_t ranks = (size_t)g->world->n_ranks;
    memset(m, 0, sizeof *m);
    m->engine = g;
    m->async = g->ops->async;
    m->interval = interval;
    m->report = report;
    m->context = context;
    m->request = MPI_REQUEST_NULL;
    m->stats.pid = (int32_t)getpid();
    memcpy(m->stats.host, g->world->host, sizeof m->stats.host - 1);
    energy_open(&m->energy, g->ops, g->q);
    m->stats.joules_integrated = energy_is_integral(&m->energy);
    /* A step's begin and end, and begin and end of each collective: two per layer, each in pieces with two calls, that
     * of the embedding, that of the logits. */
    int n_layers = g->network != NULL ? g->network->config.n_layers : MODEL_MAX_LAYERS;
    m->max_stamps = 2 + 2 * (2 * 2 * COMM_PIECES * n_layers + 2);
    m->between = err_calloc(e, (size_t)m->max_stamps, sizeof *m->between, "meter");
    for (int f = 0; f < ENGINE_FLIGHTS; f++)
        m->flight[f].part = err_calloc(e, (size_t)m->max_stamps, 1, "meter");
    m->gathered = err_calloc(e, ranks, sizeof *m->gathered, "meter");
    m->total = err_calloc(e, ranks, sizeof *m->total, "meter");
    m->recent = err_calloc(e, ranks, sizeof *m->recent, "meter");
    if (m->async != NULL && m->async->open_stamps(g->q, m->max_stamps) != 0)
        ERR(e, g->q->err.code, "meter: %s", g->q->err.text);
    m->observer.hooks = &hooks;
    observers_add(&g->observers, &m->observer);
    return e->code == ERR_NONE ? 0 : -1;
}

void meter_close(struct meter *m)
{
    struct engine *g = m->engine;
    if (g == NULL)
        return;
    observers_remove(&g->observers, &m->observer);
    if (m->async != NULL)
        m->async->close_stamps(g->q);
    energy_close(&m->energy);
    for (int f = 0; f < ENGINE_FLIGHTS; f++)
        free(m->flight[f].part);
    free(m->between);
    free(m->gathered);
    free(m->total);
    free(m->recent);
    memset(m, 0, sizeof *m);
}
