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

/* n: more sequences of one who has *n_own. *n_any: how many have any. */
static void count_sequences(int n, int *n_own, int *n_any)
{
    *n_any -= *n_own > 0;
    *n_own += n;
    *n_any += *n_own > 0;
}

static void count_at_replicas(struct server *s, const struct task *task, int n)
{
    struct client *c = task->ticket.client;
    count_sequences(n, &c->n_in_replicas, &s->n_at_replicas);
    count_sequences(n, &task->ticket.party->n_in_replicas, &c->n_at_replicas);
}

/* Gives the task to a replica, on whose set it uses its model from now on. */
static void give_replica(struct server *s, struct task *task, int replica)
{
    int set = models_set_of(&s->models, replica);
    if (set != task->ticket.set)
        placement_move(&s->models.placement, task->ticket.model, task->ticket.set, set, seconds_now());
    task->ticket.set = set;
    count_at_replicas(s, task, task->ticket.n_sequences);
    replicas_submit(&s->replicas, task, replica);
}

void dispatch_take_from_replicas(struct server *s, struct task *task)
{
    count_at_replicas(s, task, -task->ticket.n_sequences);
}

/* A replica has somewhat more sequences than it runs, so that no slot is ever idle; the others wait here, where clients
 * take turns. */
static int spare_places(const struct server *s)
{
    int n = replicas_running(&s->replicas);
    return replicas_max_seqs(&s->replicas) / (n > 0 ? n : 1) / SPARE_SHARE;
}

/* The share of one who has n of the places, if n_any have some. */
static int share_of(int places, int n, int n_any)
{
    return places / (n_any - (n > 0) + 1);
}

/* Does the task's party have less than its share of its client's share at the replicas? Then the task does not wait
 * until others have finished: schedulers give it its turn. */
static bool is_below_share(const struct server *s, const struct task *task)
{
    const struct client *c = task->ticket.client;
    int n = task->ticket.party->n_in_replicas;
    int of_client = share_of(replicas_max_seqs(&s->replicas), c->n_in_replicas, s->n_at_replicas);
    return n < share_of(of_client, n, c->n_at_replicas);
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
    if (turns_has_none(&s->turns[TURN_REPLICA], task->ticket.party) && is_below_share(s, task))
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

static void check_time(struct server *s, struct task *task, double now)
{
    int64_t limit = task->message.generate.timeout_ms;
    if (limit <= 0 || now - task->arrived < 1e-3 * (double)limit)
        return;
    turns_remove(&s->turns[task->ticket.waits_for], task);
    (void)protocol_fail(&task->error, PROTOCOL_TIMEOUT, "timeout_ms", "%lld ms have passed", (long long)limit);
    server_refuse(s, task);
}

void server_check_times(struct server *s)
{
    double now = seconds_now();
    if (s->turns[TURN_REPLICA].n + s->turns[TURN_MODEL].n == 0 || now - s->times_checked < CHECK_SECONDS)
        return;
    s->times_checked = now;
    for (struct client *c = s->clients.first; c != NULL; c = c->next)
        for (struct task *task = c->tasks, *next; task != NULL; task = next) {
            next = task->ticket.next;
            if (task->ticket.waits && (task->ticket.waits_for == TURN_REPLICA || task->ticket.waits_for == TURN_MODEL))
                check_time(s, task, now);
        }
}
