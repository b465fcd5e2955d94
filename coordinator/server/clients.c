/* coordinator/server/clients.c - see clients.h. */
#include "coordinator/server/clients.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    const struct channel_name *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

struct client *clients_find(struct clients *c, const struct channel_name *channel)
{
    void *found = tfind(channel, &c->tree, compare);
    struct client *one = found != NULL ? *(struct client **)found : NULL;
    if (one != NULL)
        return one;
    one = calloc(1, sizeof *one);
    if (one == NULL)
        return NULL;
    one->channel = *channel;
    if (tsearch(one, &c->tree, compare) == NULL) {
        free(one);
        return NULL;
    }
    one->next = c->first;
    if (one->next != NULL)
        one->next->previous = one;
    c->first = one;
    c->n++;
    return one;
}

void clients_gone(struct clients *c, struct client *one)
{
    if (one->gone)
        return;
    (void)tdelete(one, &c->tree, compare);
    one->gone = true;
    c->any_gone = true;
}

void clients_gone_channel(struct clients *c, const struct channel_name *channel)
{
    void *found = tfind(channel, &c->tree, compare);
    if (found != NULL)
        clients_gone(c, *(struct client **)found);
}

static void cut(struct clients *c, struct transport *t, struct client *one)
{
    clients_gone(c, one);
    transport_disconnect(t, &one->channel);
}

static void keep_outgoing(struct clients *c, struct transport *t, struct client *to, const struct outgoing *what)
{
    struct outgoing *o = malloc(sizeof *o);
    if (o == NULL) { /* no error can be sent, and no reply may be lost silently */
        free(what->text);
        cut(c, t, to);
        return;
    }
    *o = *what;
    o->next = NULL;
    if (to->last != NULL)
        to->last->next = o;
    else
        to->first = o;
    to->last = o;
    to->backlog += o->bytes;
    c->backlog += o->bytes;
}

void clients_send(struct clients *c, struct transport *t, struct client *to, struct outgoing what)
{
    enum sent sent = to->gone ? SENT_GONE : SENT_LATER;
    if (!to->gone && to->first == NULL)
        sent = transport_send(t, &to->channel, what.delimiter, what.text, what.bytes);
    if (sent == SENT_LATER)
        keep_outgoing(c, t, to, &what);
    else if (sent == SENT_GONE) {
        free(what.text);
        clients_gone(c, to);
    }
}

static void drop_first(struct clients *c, struct client *one)
{
    struct outgoing *o = one->first;
    one->first = o->next;
    if (one->first == NULL)
        one->last = NULL;
    one->backlog -= o->bytes;
    c->backlog -= o->bytes;
    free(o);
}

void clients_flush(struct clients *c, struct transport *t)
{
    for (struct client *one = c->backlog > 0 ? c->first : NULL; one != NULL; one = one->next)
        while (one->first != NULL && !one->gone) {
            struct outgoing *o = one->first;
            enum sent sent = transport_send(t, &one->channel, o->delimiter, o->text, o->bytes);
            if (sent == SENT_GONE)
                clients_gone(c, one);
            if (sent != SENT)
                break;
            drop_first(c, one);
        }
}

int clients_cut(struct clients *c, struct transport *t, size_t most_bytes)
{
    int n = 0;
    for (struct client *one = c->backlog > most_bytes ? c->first : NULL; one != NULL; one = one->next)
        if (one->last != NULL && one->backlog - one->last->bytes > most_bytes && !one->gone) {
            cut(c, t, one);
            n++;
        }
    return n;
}

void clients_take_back(struct clients *c, struct client *of, uint64_t task)
{
    struct outgoing *kept = of->first;
    of->first = of->last = NULL;
    while (kept != NULL) {
        struct outgoing *o = kept;
        kept = o->next;
        o->next = NULL;
        if (o->tokens && o->task == task) {
            of->backlog -= o->bytes;
            c->backlog -= o->bytes;
            free(o->text);
            free(o);
            continue;
        }
        if (of->last != NULL)
            of->last->next = o;
        else
            of->first = o;
        of->last = o;
    }
}

static void forget_one(struct clients *c, struct client *one)
{
    while (one->first != NULL) {
        free(one->first->text);
        drop_first(c, one);
    }
    if (one->previous != NULL)
        one->previous->next = one->next;
    else
        c->first = one->next;
    if (one->next != NULL)
        one->next->previous = one->previous;
    c->n--;
    free(one);
}

void clients_sweep(struct clients *c, void (*forget)(void *context, struct client *one), void *context)
{
    if (!c->any_gone)
        return;
    c->any_gone = false;
    for (struct client *one = c->first, *next; one != NULL; one = next) {
        next = one->next;
        if (!one->gone)
            continue;
        forget(context, one);
        forget_one(c, one);
    }
}

void clients_close(struct clients *c)
{
    for (struct client *one = c->first, *next; one != NULL; one = next) {
        next = one->next;
        clients_gone(c, one);
        forget_one(c, one);
    }
}

static int compare_parties(const void *a, const void *b)
{
    return strcmp(((const struct party *)a)->name, ((const struct party *)b)->name);
}

/* The party of this name, made if necessary; the client's own if there is none, or no room for it. */
static struct party *find_party(struct client *c, const char *name)
{
    struct party key = {.number = 0};
    if (name[0] == '\0')
        return &c->own;
    (void)snprintf(key.name, sizeof key.name, "%s", name);
    void *found = tfind(&key, &c->parties, compare_parties);
    if (found != NULL)
        return *(struct party **)found;
    struct party *p = c->n_parties < CLIENT_PARTIES ? malloc(sizeof *p) : NULL;
    if (p == NULL)
        return &c->own;
    *p = key;
    if (tsearch(p, &c->parties, compare_parties) == NULL) {
        free(p);
        return &c->own;
    }
    p->number = ++c->last_number;
    c->n_parties++;
    return p;
}

static void leave_party(struct client *c, struct party *p)
{
    if (--p->n_tasks > 0 || p == &c->own)
        return;
    (void)tdelete(p, &c->parties, compare_parties);
    c->n_parties--;
    free(p);
}

void client_add_task(struct client *c, struct task *task, const char *name)
{
    task->ticket.client = c;
    task->ticket.party = find_party(c, name);
    task->ticket.party->n_tasks++;
    task->asker = c->channel.number;
    task->party = task->ticket.party->number;
    task->ticket.previous = NULL;
    task->ticket.next = c->tasks;
    if (task->ticket.next != NULL)
        task->ticket.next->ticket.previous = task;
    c->tasks = task;
}

void client_remove_task(struct task *task)
{
    if (task->ticket.client == NULL)
        return;
    if (task->ticket.previous != NULL)
        task->ticket.previous->ticket.next = task->ticket.next;
    else
        task->ticket.client->tasks = task->ticket.next;
    if (task->ticket.next != NULL)
        task->ticket.next->ticket.previous = task->ticket.previous;
    leave_party(task->ticket.client, task->ticket.party);
    task->ticket.client = NULL;
    task->ticket.party = NULL;
}
