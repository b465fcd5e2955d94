/* coordinator/server/feed.c - tasks that wait for their turn: gives them to workers and replicas that have room, and
 * enforces time limits. See server.h. */
#include "base/clock.h"
#include "coordinator/server/dispatch.h"
#include "coordinator/tasks/mailbox.h"

#define AT_WORKER     2    /* tasks: one in work and the next one */
#define SPARE_SHARE   4    /* a replica has this part of its slots in addition as waiting sequences */
#define CHECK_SECONDS 0.05 /* between two checks of time limits */

void dispatch_wait(struct server *s, struct task *task, enum turn_kind kind)
{
    task->ticket.waits_for = kind;
    turns_put(&s->turns[kind], task);
}

/* A replica that may have the task, with this many spare sequences; -1: all are full. */
static int choose_replica(const struct server *s, const struct task *task, int spare)
{
    return models_choose(&s->models, task->ticket.model, task->ticket.set, task->served, spare);
}

/* Gives the task to a replica, on whose set it uses its model from now on. */
static void give_replica(struct server *s, struct task *task, int replica)
{
    int set = models_set_of(&s->models, replica);
    if (set != task->ticket.set)
        placement_move(&s->models.placement, task->ticket.model, task->ticket.set, set, seconds_now());
    task->ticket.set = set;
    s->n_at_replicas += task->ticket.client->n_in_replicas == 0;
    task->ticket.client->n_in_replicas += task->ticket.n_sequences;
    replicas_submit(&s->replicas, task, replica);
}

void dispatch_take_from_replicas(struct server *s, struct client *c, int n_sequences)
{
    s->n_at_replicas -= n_sequences > 0 && n_sequences == c->n_in_replicas;
    c->n_in_replicas -= n_sequences;
}

/* A replica has somewhat more sequences than it runs, so that no slot is ever idle; the others wait here, where clients
 * take turns. */
static int spare_places(const struct server *s)
{
    int n = replicas_running(&s->replicas);
    return replicas_max_seqs(&s->replicas) / (n > 0 ? n : 1) / SPARE_SHARE;
}

/* Does this client have less than its share at the replicas? Then its task does not wait until others have finished:
 * schedulers give it its turn. */
static bool is_below_share(const struct server *s, const struct client *c)
{
    int places = replicas_max_seqs(&s->replicas), others = s->n_at_replicas - (c->n_in_replicas > 0);
    return c->n_in_replicas < places / (others + 1);
}

void dispatch_submit(struct server *s, struct task *task)
{
    /* 53 bits: every JSON library keeps them. */
    if (task_prepare(task, replicas_max_len(&s->replicas, task->ticket.model), s->setup.o->service.max_reply_bytes,
                     server_random() >> 11) != 0)
        task->result_bytes = 0;
    else
        (void)server_reserve_results(s, task);
    if (task->error.code != 0) {
        server_refuse(s, task);
        return;
    }
    task->ticket.queued = seconds_now();
    if (task->ticket.client->turn[TURN_REPLICA].first == NULL && is_below_share(s, task->ticket.client))
        give_replica(s, task, choose_replica(s, task, -1));
    else
        dispatch_wait(s, task, TURN_REPLICA);
}

static void feed_worker(struct server *s, int worker)
{
    struct task *task;
    while (s->at_worker[worker] < AT_WORKER && (task = turns_take(&s->turns[worker])) != NULL) {
        s->at_worker[worker]++;
        (void)mailbox_post(s->worker[worker].end[0], task);
    }
}

static bool has_place(const void *server, const struct task *task)
{
    const struct server *s = server;
    return choose_replica(s, task, spare_places(s)) >= 0;
}

/* Has any replica room? If not, no task is considered. */
static bool have_places(const struct server *s)
{
    int spare = spare_places(s);
    bool any = false;
    for (int i = 0; i < s->replicas.n && !any; i++)
        any = s->replicas.replica[i].model >= 0 &&
              replicas_choose(&s->replicas, s->replicas.replica[i].model, spare, NULL, NULL) >= 0;
    return any;
}

static void feed_replicas(struct server *s)
{
    struct task *task;
    while (s->turns[TURN_REPLICA].n > 0 && have_places(s) &&
           (task = turns_take_fitting(&s->turns[TURN_REPLICA], has_place, s)) != NULL)
        give_replica(s, task, choose_replica(s, task, spare_places(s)));
}

void server_feed(struct server *s)
{
    for (int i = 0; i < 2; i++)
        feed_worker(s, i);
    if (s->state == SERVER_READY || s->state == SERVER_DRAINING)
        feed_replicas(s);
}

static void check_times(struct server *s, struct turns *t, double now)
{
    for (struct client *c = s->clients.first; c != NULL && t->n > 0; c = c->next)
        for (struct task *task = c->turn[t->kind].first, *next; task != NULL; task = next) {
            int64_t limit = task->message.generate.timeout_ms;
            next = task->ticket.turn_next;
            if (limit <= 0 || now - task->arrived < 1e-3 * (double)limit)
                continue;
            turns_remove(t, task);
            (void)protocol_fail(&task->error, PROTOCOL_TIMEOUT, "timeout_ms", "%lld ms have passed", (long long)limit);
            server_refuse(s, task);
        }
}

void server_check_times(struct server *s)
{
    double now = seconds_now();
    if (s->turns[TURN_REPLICA].n + s->turns[TURN_MODEL].n == 0 || now - s->times_checked < CHECK_SECONDS)
        return;
    s->times_checked = now;
    check_times(s, &s->turns[TURN_REPLICA], now);
    check_times(s, &s->turns[TURN_MODEL], now);
}
