/* coordinator/server/ending.c - the end of a client, and the server's own. See server.h. */
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/server/dispatch.h"
#include "coordinator/server/rendezvous.h"

void server_ended(struct server *s)
{
    s->state = SERVER_ENDED;
    s->ended_at = seconds_now();
}

/* Called before a client is forgotten: its requests have no reader any more. */
void server_client_left(void *server, struct client *c)
{
    struct server *s = server;
    bool open = c->tasks != NULL;
    while (c->tasks != NULL) {
        struct task *task = c->tasks;
        (void)protocol_fail(&task->ticket.verdict, PROTOCOL_CANCELLED, "", "the client is gone");
        if (task->ticket.waits) { /* tasks that still wait need not begin */
            turns_remove(&s->turns[task->ticket.waits_for], task);
            dispatch_finish(s, task, PROTOCOL_CANCELLED);
            continue;
        }
        atomic_store(&task->abandoned, true);
        client_remove_task(task);
        server_cancel(s, task, FINISH_CANCELLED);
    }
    s->n_at_replicas -= c->n_in_replicas > 0; /* tasks that remain there have no client */
    s->metrics.n_lost_clients += open;
}

void server_drain(struct server *s, double seconds)
{
    if (s->state == SERVER_DRAINING || s->state >= SERVER_STOPPING)
        return;
    s->state = SERVER_DRAINING;
    s->drain_until = seconds_now() + seconds;
    log_note("draining: %.0f s for %d open request%s", seconds, s->n_open, s->n_open == 1 ? "" : "s");
}

void server_stop(struct server *s, enum protocol_code code, const char *why)
{
    if (s->state >= SERVER_STOPPING)
        return;
    s->state = SERVER_STOPPING;
    for (struct client *c = s->clients.first; c != NULL; c = c->next)
        for (struct task *task = c->tasks, *next; task != NULL; task = next) {
            struct protocol_error error = {0};
            next = task->ticket.next;
            (void)protocol_fail(&error, code, "", "%s", why);
            if (!task->ticket.answered && (task->ticket.unread || task->message.op == PROTOCOL_GENERATE))
                s->n_cut_short++;
            answer_error(s, task, &error);
            if (task->ticket.waits) {
                turns_remove(&s->turns[task->ticket.waits_for], task);
                dispatch_finish(s, task, code);
            }
        }
    if (*why != '\0')
        log_note("ending: %s; open requests that were answered with an error: %d", why, s->n_cut_short);
    if (models_are_many(&s->models))
        models_stop(&s->models);
    else
        replicas_stop(&s->replicas);
}

/* After a second request to end, at least a second after the first, open requests get no more time. */
void server_signal(struct server *s, enum signal_wish wish, bool own)
{
    double now = seconds_now();
    if (wish == WISH_DRAIN)
        server_drain(s, (double)s->setup.o->drain_seconds);
    if (wish == WISH_FAIL) {
        server_stop(s, PROTOCOL_INTERNAL, "the engine has failed");
        rendezvous_remove(s);
        transport_unlink(&s->transport);
    }
    if (wish != WISH_END)
        return;
    bool again = own && s->end_asked > 0 && now - s->end_asked > 1;
    if (s->setup.end_seconds <= 0 || again)
        server_stop(s, PROTOCOL_UNAVAILABLE, "the server was told to end by a signal");
    else if (s->end_asked == 0 && s->state == SERVER_DRAINING)
        s->drain_until = now + s->setup.end_seconds < s->drain_until ? now + s->setup.end_seconds : s->drain_until;
    else if (s->end_asked == 0)
        server_drain(s, s->setup.end_seconds);
    s->end_asked = s->end_asked > 0 ? s->end_asked : now;
}
