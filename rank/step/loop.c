/* rank/step/loop.c - see loop.h. */
#include "rank/step/loop.h"
#include "base/clock.h"
#include "rank/watch/notice.h"
#include "rank/world/fatal.h"

#include <time.h>

/* A plan of a usual decode step fits into the first broadcast. Its header tells all ranks whether more follows. */
#define EAGER_BYTES 4096

/* A blocking broadcast would spin on a whole core. Poll: hot for a few milliseconds, since the next plan is due at once
 * while there is work, then in naps that grow to 500 us (measured: 2 % of a core, wake-up under 2 ms; with 200 us 4 %). */
static void wait_for(MPI_Request *request, struct notice *notice)
{
    double started = seconds_now();
    for (int done = 0;;) {
        if (notice != NULL) /* at least once a step, also where the plan is always there before it is waited for */
            notice_tell(notice);
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

/* notice: of a rank that reports signals while it waits, or NULL. */
static void share(struct plan *p, const struct world *w, int vocab, struct notice *notice)
{
    struct err e = {0};
    size_t eager = p->message_capacity < EAGER_BYTES ? p->message_capacity : EAGER_BYTES;
    MPI_Request request;
    if (w->n_ranks == 1)
        return;
    if (w->rank == 0)
        (void)plan_pack(p);
    MPI_CHECK(MPI_Ibcast(p->message, (int)eager, MPI_BYTE, 0, w->comm, &request));
    wait_for(&request, notice);
    size_t bytes = plan_message_bytes(p->message);
    if (bytes > eager && bytes <= p->message_capacity)
        MPI_CHECK(MPI_Bcast(p->message + eager, (int)(bytes - eager), MPI_BYTE, 0, w->comm));
    if (w->rank != 0 && plan_unpack(p, bytes, vocab, &e) != 0)
        fatal(&e);
}

void loop_share(struct plan *p, const struct world *w, int vocab)
{
    share(p, w, vocab, NULL);
}

/* Rank 0: the client's next plan; while it has none, signals and figures of other ranks are received. The first rank
 * of a further replica reports its own signals, as all ranks do. */
static void ask(struct engine *g, struct plan *p, const struct loop_client *client, struct notice *notice,
                struct err *e)
{
    for (int asked = PLAN_IDLE; asked == PLAN_IDLE;) {
        if (g->world->job_rank != 0)
            notice_tell(notice);
        enum signal_wish wish = g->world->job_rank == 0 ? notice_hear(notice) : WISH_NONE;
        if (wish != WISH_NONE && client->signal != NULL)
            client->signal(client->context, wish);
        observers_tell(&g->observers, idle);
        asked = client->next(client->context, p, e);
        if (asked != 0 && asked != PLAN_IDLE)
            fatal(e);
    }
}

static void take_result(struct engine *g, const struct loop_client *client, struct err *e)
{
    struct step_result result;
    observers_tell(&g->observers, activity, RANK_AWAITS_DEVICE);
    engine_take(g, &result);
    observers_tell(&g->observers, tokens, &result);
    observers_tell(&g->observers, activity, g->world->rank == 0 ? RANK_COORDINATES : RANK_WORKS);
    if (g->world->rank == 0 && client->accept(client->context, &result, e) != 0)
        fatal(e);
    observers_tell(&g->observers, activity, RANK_WORKS);
    observers_tell(&g->observers, between_steps, false);
}

/* This rank has lost or repeated a step. */
static _Noreturn void fail_apart(uint64_t found, uint64_t expected)
{
    struct err e = {0};
    ERR(&e, ERR_INTERNAL, "received the plan of step %llu, expected that of step %llu", (unsigned long long)found,
        (unsigned long long)expected);
    fatal(&e);
}

/* On a device the plan of the next step is made and sent while a step runs: its tokens feed each other there. */
void loop_run(struct engine *g, const struct loop_client *client, struct err *e)
{
    struct plan plan;
    struct notice notice;
    int under_way = 0;
    if (plan_open(&plan, &g->limits, e) != 0)
        fatal(e);
    notice_open(&notice, g->world);
    for (uint64_t step = 0;; step++) {
        plan_reset(&plan, step);
        observers_tell(&g->observers, next_step, g->world->rank == 0 ? RANK_COORDINATES : RANK_AWAITS_PLAN, step);
        if (g->world->rank == 0)
            ask(g, &plan, client, &notice, e);
        observers_tell(&g->observers, plan, &plan);
        observers_tell(&g->observers, collective, COLLECTIVE_PLAN);
        share(&plan, g->world, g->network->config.vocab, g->world->rank != 0 ? &notice : NULL);
        if (plan.step != step)
            fail_apart(plan.step, step);
        if (plan.kind == PLAN_STOP)
            break;
        observers_tell(&g->observers, activity, RANK_WORKS);
        engine_submit(g, &plan);
        if (++under_way == engine_flights(g)) {
            take_result(g, client, e);
            under_way--;
        }
    }
    for (; under_way > 0; under_way--)
        take_result(g, client, e);
    observers_tell(&g->observers, between_steps, true);
    observers_tell(&g->observers, activity, RANK_OUTSIDE);
    notice_close(&notice);
    plan_close(&plan);
}
