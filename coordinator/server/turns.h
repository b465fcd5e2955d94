/* coordinator/server/turns.h - tasks that wait for a resource, taken from clients in turn, and within a client from its
 * parties in turn: one with ten thousand tasks delays only itself, and many names give a client no more turns. Pure. */
#ifndef SERVER_TURNS_H
#define SERVER_TURNS_H

#include "coordinator/server/clients.h"

#include <stdbool.h>

/* The resources: either worker, a replica, a model that is not loaded. */
enum turn_kind { TURN_TEXTS, TURN_LARGE, TURN_REPLICA, TURN_MODEL, N_TURNS };

_Static_assert(N_TURNS == CLIENT_TURNS, "a client may wait for each of them");

struct turns {
    enum turn_kind kind;
    struct turn all; /* below: the client whose turn it is */
    int n;           /* tasks */
};

/* The task's client and party are there. By priority where the kind is TURN_REPLICA, the lower value first; else in
 * order. */
void turns_put(struct turns *t, struct task *task);

/* The next task of the next party of the next client; NULL: none waits. */
struct task *turns_take(struct turns *t);

/* The next task that fits: of the next client that has one its next party's first. NULL: none does. */
struct task *turns_take_fitting(struct turns *t, bool (*fits)(const void *context, const struct task *task),
                                const void *context);

/* Take this task out, which waits here. */
void turns_remove(struct turns *t, struct task *task);

/* Has the party no task here? */
bool turns_has_none(const struct turns *t, const struct party *p);

/* The newest task of the client's party that has most sequences here, if those are more than `most`; NULL: none has. */
struct task *turns_heaviest_party(const struct turns *t, const struct client *c, int most);

/* The same of the client that has most, whatever each of its parties has. */
struct task *turns_heaviest(const struct turns *t, int most);

#endif
