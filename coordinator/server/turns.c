/* coordinator/server/turns.c - see turns.h. */
#include "coordinator/server/turns.h"

static void join_ring(struct turns *t, struct client *c)
{
    struct client_turn *mine = &c->turn[t->kind];
    if (t->next == NULL) {
        t->next = mine->next = mine->previous = c;
        return;
    }
    struct client *after = t->next, *before = after->turn[t->kind].previous; /* last in turn */
    mine->next = after;
    mine->previous = before;
    before->turn[t->kind].next = c;
    after->turn[t->kind].previous = c;
}

static void leave_ring(struct turns *t, struct client *c)
{
    struct client_turn *mine = &c->turn[t->kind];
    if (mine->next == c)
        t->next = NULL;
    else if (t->next == c)
        t->next = mine->next;
    mine->next->turn[t->kind].previous = mine->previous;
    mine->previous->turn[t->kind].next = mine->next;
    mine->next = mine->previous = NULL;
}

static int urgency(const struct turns *t, const struct task *task)
{
    return t->kind == TURN_REPLICA ? task->message.generate.priority : 0;
}

void turns_put(struct turns *t, struct task *task)
{
    struct client_turn *mine = &task->ticket.client->turn[t->kind];
    if (mine->first == NULL)
        join_ring(t, task->ticket.client);
    struct task *after = mine->last; /* behind this one */
    while (after != NULL && urgency(t, after) > urgency(t, task))
        after = after->ticket.turn_previous;
    task->ticket.turn_previous = after;
    task->ticket.turn_next = after != NULL ? after->ticket.turn_next : mine->first;
    *(after != NULL ? &after->ticket.turn_next : &mine->first) = task;
    *(task->ticket.turn_next != NULL ? &task->ticket.turn_next->ticket.turn_previous : &mine->last) = task;
    task->ticket.waits = true;
    mine->n_sequences += task->ticket.n_sequences;
    t->n_sequences += task->ticket.n_sequences;
    t->n++;
}

void turns_remove(struct turns *t, struct task *task)
{
    struct client_turn *mine = &task->ticket.client->turn[t->kind];
    *(task->ticket.turn_previous != NULL ? &task->ticket.turn_previous->ticket.turn_next : &mine->first) =
        task->ticket.turn_next;
    *(task->ticket.turn_next != NULL ? &task->ticket.turn_next->ticket.turn_previous : &mine->last) =
        task->ticket.turn_previous;
    task->ticket.turn_previous = task->ticket.turn_next = NULL;
    task->ticket.waits = false;
    mine->n_sequences -= task->ticket.n_sequences;
    t->n_sequences -= task->ticket.n_sequences;
    t->n--;
    if (mine->first == NULL)
        leave_ring(t, task->ticket.client);
}

struct task *turns_take(struct turns *t)
{
    struct client *c = t->next;
    if (c == NULL)
        return NULL;
    struct task *task = c->turn[t->kind].first;
    t->next = c->turn[t->kind].next;
    turns_remove(t, task);
    return task;
}

struct task *turns_take_fitting(struct turns *t, bool (*fits)(const void *context, const struct task *task),
                                const void *context)
{
    struct client *c = t->next;
    for (bool round = false; c != NULL && !(round && c == t->next); round = true, c = c->turn[t->kind].next)
        for (struct task *task = c->turn[t->kind].first; task != NULL; task = task->ticket.turn_next)
            if (fits(context, task)) {
                t->next = c->turn[t->kind].next;
                turns_remove(t, task);
                return task;
            }
    return NULL;
}

struct task *turns_heaviest(const struct turns *t, int most)
{
    struct client *c = t->next, *heaviest = NULL;
    for (int i = 0; c != NULL && (i == 0 || c != t->next); i++, c = c->turn[t->kind].next)
        if (c->turn[t->kind].n_sequences > most) {
            heaviest = c;
            most = c->turn[t->kind].n_sequences;
        }
    return heaviest != NULL ? heaviest->turn[t->kind].last : NULL;
}
