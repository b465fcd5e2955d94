/* rank/step/loop.c - see loop.h. */
#include "rank/step/loop.h"
#include "base/clock.h"
#include "rank/watch/notice.h"
#include "rank/world/fatal.h"

#include <time.h>

/* A plan of a usual decode step fits into the first broadcast. Its header tells all ranks whether more follows. */
#define EAGER_BYTES 4096

/* The duties of a loop while it waits. */
struct waiting {
    struct notice *notice; /* of a rank that reports signals while it waits, or NULL */
    const struct loop_models *models;
};

static void poll_models(const struct loop_models *m)
{
    if (m != NULL && m->poll != NULL)
        m->poll(m->context);
}

/* A blocking broadcast would spin on a whole core. So it polls: busily for a few milliseconds, since under load the
 * next plan comes at once, then in naps that grow to 500 us (measured: 2 % of a core, wake-up under 2 ms; with 200 us 4
 * %). */
static void wait_for(MPI_Request *request, const struct waiting *waiting)
{
    double started = seconds_now();
    for (int done = 0;;) {
        if (waiting->notice != NULL) /* at least once a step, even if plans always arrive before the wait */
            notice_tell(waiting->notice);
        poll_models(waiting->models);
        MPI_CHECK(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return;
        double waited = seconds_now() - started;
        if (waited > 0.005) {
            struct timespec nap = {0, waited > 1 ? 500000 : waited > 0.05 ? 200000 : 50000};
            (void)nanosleep(&nap, NULL);
        }
    }
}

/* The packed plan, on all ranks; returns its bytes. */
static size_t send_plan(struct plan *p, const struct world *w, const struct waiting *waiting)
{
    size_t eager = p->message_capacity < EAGER_BYTES ? p->message_capacity : EAGER_BYTES;
    MPI_Request request;
    if (w->rank == 0)
        (void)plan_pack(p);
    MPI_CHECK(MPI_Ibcast(p->message, (int)eager, MPI_BYTE, 0, w->comm, &request));
    wait_for(&request, waiting);
    size_t bytes = plan_message_bytes(p->message);
    if (bytes > eager && bytes <= p->message_capacity)
        MPI_CHECK(MPI_Bcast(p->message + eager, (int)(bytes - eager), MPI_BYTE, 0, w->comm));
    return bytes;
}

static void receive(struct plan *p, size_t bytes, int vocab)
{
    struct err e = {0};
    if (plan_unpack(p, bytes, vocab, &e) != 0)
        fatal(&e);
}

void loop_share(struct plan *p, const struct world *w, int vocab)
{
    const struct waiting nothing = {0};
    if (w->n_ranks == 1)
        return;
    size_t bytes = send_plan(p, w, &nothing);
    if (w->rank != 0)
        receive(p, bytes, vocab);
}

/* The engine of a packed plan's model, whose limits the plan must respect. Any engine if the model is not loaded: its
 * steps are refused. */
static void receive_models(struct plan *p, size_t bytes, const struct loop_models *m)
{
    int model = plan_message_model(p->message), vocab = 0;
    const struct engine *g = model >= 0 ? m->engine[model] : NULL;
    if (g != NULL) {
        p->limits = g->limits;
        vocab = g->network->config.vocab;
    }
    receive(p, bytes, vocab);
}

static void share(struct plan *p, const struct loop_models *m, struct notice *notice)
{
    const struct world *w = m->ground->world;
    const struct waiting waiting = {w->rank != 0 ? notice : NULL, m};
    if (w->n_ranks == 1)
        return;
    size_t bytes = send_plan(p, w, &waiting);
    if (w->rank != 0)
        receive_models(p, bytes, m);
}

/* Rank 0: the client's next plan; until there is one, receives signals and figures of other ranks. The first rank
 * of a further set reports its own signals, as all ranks do. */
static void ask_client(const struct loop_models *m, struct plan *p, const struct loop_client *client,
                       struct notice *notice, struct err *e)
{
    struct engine *g = m->ground;
    for (int asked = PLAN_IDLE; asked == PLAN_IDLE;) {
        if (g->world->job_rank != 0)
            notice_tell(notice);
        enum signal_wish wish = g->world->job_rank == 0 ? notice_hear(notice) : WISH_NONE;
        if (wish != WISH_NONE && client->signal != NULL)
            client->signal(client->context, wish);
        observers_tell(&g->observers, idle);
        poll_models(m);
        asked = client->next(client->context, p, e);
        if (asked != 0 && asked != PLAN_IDLE)
            fatal(e);
    }
}

/* Steps under way, the oldest first. */
struct under_way {
    int n, model[ENGINE_FLIGHTS];
};

static void take_result(const struct loop_models *m, struct under_way *u, const struct loop_client *client,
                        struct err *e)
{
    struct engine *g = m->ground;
    struct step_result result;
    int model = u->model[0];
    u->n--;
    for (int i = 0; i < u->n; i++)
        u->model[i] = u->model[i + 1];
    observers_tell(&g->observers, activity, RANK_AWAITS_DEVICE);
    engine_take(m->engine[model], &result);
    result.model = model;
    observers_tell(&g->observers, tokens, &result);
    observers_tell(&g->observers, activity, g->world->rank == 0 ? RANK_COORDINATES : RANK_WORKS);
    if (g->world->rank == 0 && client->accept(client->context, &result, e) != 0)
        fatal(e);
    observers_tell(&g->observers, activity, RANK_WORKS);
    observers_tell(&g->observers, between_steps, false);
}

/* Must steps finish before this plan: those of its model, or all? A model is dropped after its last step; a model that
 * is loaded has none, and need not wait for those of others. */
static bool must_take(const struct under_way *u, const struct plan *p, int n_flights)
{
    if (u->n == 0 || p->kind == PLAN_STEP)
        return u->n == n_flights;
    for (int i = 0; i < u->n; i++)
        if (u->model[i] == p->model)
            return true;
    return u->n == n_flights;
}

/* Fails: this rank has lost or repeated a step. */
static _Noreturn void fail_apart(uint64_t found, uint64_t expected)
{
    struct err e = {0};
    ERR(&e, ERR_INTERNAL, "received the plan of step %llu, expected that of step %llu", (unsigned long long)found,
        (unsigned long long)expected);
    fatal(&e);
}

/* Loads, commits or drops a model, which may take long and has no deadline; steps of others may be in flight. */
static void change(struct loop_models *m, struct plan *p, struct err *e)
{
    int model = p->model;
    struct observers *all = &m->ground->observers;
    observers_tell(all, activity, RANK_OUTSIDE);
    m->change(m->context, p); /* NOLINT(clang-analyzer-core.CallAndMessage): only loops of several models change */
    if (m->engine[model] != NULL && plan_reserve(p, &m->engine[model]->limits, e) != 0)
        fatal(e);
    observers_tell(all, activity, RANK_WORKS);
}

static void submit(const struct loop_models *m, const struct plan *p, struct under_way *u)
{
    struct err e = {0};
    if (m->engine[p->model] == NULL) {
        ERR(&e, ERR_INTERNAL, "plan %llu is of model %d, which is not loaded", (unsigned long long)p->step, p->model);
        fatal(&e);
    }
    observers_tell(&m->ground->observers, activity, RANK_WORKS);
    engine_align(m->engine[p->model], p->step);
    engine_submit(m->engine[p->model], p);
    u->model[u->n++] = p->model;
}

/* Provides the late masks of the step submitted last, after the results of the one before it, and chooses its
 * tokens. */
static void send_late_masks(const struct loop_models *m, struct plan *p, const struct loop_client *client)
{
    struct engine *g = m->ground;
    if (p->n_late == 0)
        return;
    if (g->world->rank == 0)
        client->masks(client->context, p);
    observers_tell(&g->observers, collective, COLLECTIVE_PLAN);
    if (g->world->n_ranks > 1)
        MPI_CHECK(MPI_Bcast(plan_late_masks(p), (int)plan_late_bytes(p), MPI_BYTE, 0, g->world->comm));
    observers_tell(&g->observers, activity, RANK_WORKS);
    engine_choose(m->engine[p->model], p);
}

/* On a device the plan of the next step is made and sent while a step runs; tokens pass from one to the other on the
 * device. */
void loop_run_models(struct loop_models *m, const struct loop_client *client, struct err *e)
{
    struct engine *g = m->ground;
    struct plan plan;
    struct notice notice;
    struct under_way u = {0};
    if (plan_open(&plan, &g->limits, e) != 0)
        fatal(e);
    notice_open(&notice, g->world);
    for (uint64_t step = 0;; step += plan.kind == PLAN_STEP) { /* so the next step has another flight than the last */
        plan_reset(&plan, step);
        observers_tell(&g->observers, next_step, g->world->rank == 0 ? RANK_COORDINATES : RANK_AWAITS_PLAN, step);
        if (g->world->rank == 0)
            ask_client(m, &plan, client, &notice, e);
        observers_tell(&g->observers, plan, &plan);
        observers_tell(&g->observers, collective, COLLECTIVE_PLAN);
        share(&plan, m, &notice);
        if (plan.step != step)
            fail_apart(plan.step, step);
        if (plan.kind == PLAN_STOP)
            break;
        if (plan.kind == PLAN_STEP)
            submit(m, &plan, &u);
        while (must_take(&u, &plan, engine_flights(g)))
            take_result(m, &u, client, e);
        if (plan.kind == PLAN_STEP)
            send_late_masks(m, &plan, client);
        else
            change(m, &plan, e);
    }
    while (u.n > 0)
        take_result(m, &u, client, e);
    observers_tell(&g->observers, between_steps, true);
    observers_tell(&g->observers, activity, RANK_OUTSIDE);
    notice_close(&notice);
    plan_close(&plan);
}

void loop_run(struct engine *g, const struct loop_client *client, struct err *e)
{
    struct loop_models one = {.ground = g, .engine = {g}};
    loop_run_models(&one, client, e);
}
