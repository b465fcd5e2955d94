/* coordinator/server/turns.c - see turns.h. */
#include "coordinator/server/turns.h"

static void join_ring(struct turn *above, struct turn *one)
{
    if (one->next != NULL) /* it is there */
        return;
    if (above->below == NULL) {
        above->below = one->next = one->previous = one;
        return;
    }
    struct turn *after = above->below, *before = after->previous; /* last in turn */
    one->next = after;
    one->previous = before;
    before->next = one;
    after->previous = one;
}

static void leave_ring(struct turn *above, struct turn *one)
{
    if (one->next == one)
        above->below = NULL;
    else if (above->below == one)
        above->below = one->next;
    one->next->previous = one->previous;
    one->previous->next = one->next;
    one->next = one->previous = NULL;
}

static int urgency(const struct turns *t, const struct task *task)
{
    return t->kind == TURN_REPLICA ? task->message.generate.priority : 0;
}

static void count(struct turns *t, const struct task *task, int sign)
{
    int n = sign * task->ticket.n_sequences;
    task->ticket.party->turn[t->kind].n_sequences += n;
    task->ticket.client->turn[t->kind].n_sequences += n;
    t->all.n_sequences += n;
    t->n += sign;
}

void turns_put(struct turns *t, struct task *task)
{
    struct turn *mine = &task->ticket.party->turn[t->kind], *above = &task->ticket.client->turn[t->kind];
    struct task *after = mine->last; /* behind this one */
    while (after != NULL && urgency(t, after) > urgency(t, task))
        after = after->ticket.turn_previous;
    task->ticket.turn_previous = after;
    task->ticket.turn_next = after != NULL ? after->ticket.turn_next : mine->first;
    *(after != NULL ? &after->ticket.turn_next : &mine->first) = task;
    *(task->ticket.turn_next != NULL ? &task->ticket.turn_next->ticket.turn_previous : &mine->last) = task;
    task->ticket.waits = true;
    join_ring(above, mine);
    join_ring(&t->all, above);
    count(t, task, 1);
}

void turns_remove(struct turns *t, struct task *task)
{
    struct turn *mine = &task->ticket.party->turn[t->kind], *above = &task->ticket.client->turn[t->kind];
    *(task->ticket.turn_previous != NULL ? &task->ticket.turn_previous->ticket.turn_next : &mine->first) =
        task->ticket.turn_next;
    *(task->ticket.turn_next != NULL ? &task->ticket.turn_next->ticket.turn_previous : &mine->last) =
        task->ticket.turn_previous;
    task->ticket.turn_previous = task->ticket.turn_next = NULL;
    task->ticket.waits = false;
    if (mine->first == NULL)
        leave_ring(above, mine);
    if (above->below == NULL)
        leave_ring(&t->all, above);
    count(t, task, -1);
}

struct task *turns_take(struct turns *t)
{
    struct turn *one = &t->all;
    while (one->below != NULL) {
        struct turn *next = one->below;
        one->below = next->next;
        one = next;
    }
    struct task *task = one->first;
    if (task != NULL)
        turns_remove(t, task);
    return task;
}

/* A found task takes the turns that lead to it. */
static struct task *find_fitting(struct turn *one, bool (*fits)(const void *context, const struct task *task),
                                 const void *context)
{
    struct task *task = one->first;
    while (task != NULL && !fits(context, task))
        task = task->ticket.turn_next;
    struct turn *begin = one->below, *next = begin;
    while (task == NULL && next != NULL) {
        task = find_fitting(next, fits, context);
        if (task != NULL)
            one->below = next->next;
        next = next->next != begin ? next->next : NULL;
    }
    return task;
}

struct task *turns_take_fitting(struct turns *t, bool (*fits)(const void *context, const struct task *task),
                                const void *context)
{
    struct task *task = find_fitting(&t->all, fits, context);
    if (task != NULL)
        turns_remove(t, task);
    return task;
}

bool turns_has_none(const struct turns *t, const struct party *p)
{
    return p->turn[t->kind].first == NULL;
}

static const struct turn *heaviest(const struct turn *above, int most)
{
    const struct turn *one = above->below, *found = NULL;
    for (int i = 0; one != NULL && (i == 0 || one != above->below); i++, one = one->next)
        if (one->n_sequences > most) {
            found = one;
            most = one->n_sequences;
        }
    return found;
}

static struct task *newest_of_heaviest(const struct turn *above, int most)
{
    const struct turn *party = heaviest(above, most);
    return party != NULL ? party->last : NULL;
}

struct task *turns_heaviest_party(const struct turns *t, const struct client *c, int most)
{
    return newest_of_heaviest(&c->turn[t->kind], most);
}

struct task *turns_heaviest(const struct turns *t, int most)
{
    const struct turn *client = heaviest(&t->all, most);
    return client != NULL ? newest_of_heaviest(client, 0) : NULL;
}
