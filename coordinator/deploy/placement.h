/* coordinator/deploy/placement.h - places many models on several sets of ranks. Each set has its own table (deploy.h),
 * memory and queue, and loads one model at a time; so different sets load and run different models at the same time.
 *
 * - A request goes to the set that has the model loaded, of several the one with the fewest requests in it.
 * - All requests for a model wait in one set: the one that is loading it already, else one with room, else the one
 * whose
 *   models that would have to go were used longest ago, else one whose busy models yield; among equals the one with the
 *   shortest line. A model's size is known once it has been opened: then another set with room may still take it, and
 *   so may one that has nothing to load while the model stands in line.
 * - A model may have several replicas, each on a set of its own. When a request finds the model in use in all sets that
 *   have it, one more set loads it, if only idle models have to go for that. An operator's load loads all replicas.
 *
 * A pure module, as deploy.h is. One set: as the table alone. */
#ifndef DEPLOY_PLACEMENT_H
#define DEPLOY_PLACEMENT_H

#include "coordinator/deploy/deploy.h"

struct placement {
    int n_sets, n_models;
    struct deploy *set;  /* [n_sets] tables; only the functions below change their models */
    const int *replicas; /* [n_models] limit of sets that may have a model at once, at least 1; borrowed. NULL: 1 */
    int turn;            /* the set whose next decision is requested first */
};

/* setup: of each set. */
int placement_open(struct placement *p, const struct deploy_setup *setup, int n_sets, const int *replicas,
                   struct err *e);
void placement_close(struct placement *p);

/* As in deploy.h. *set: DEPLOY_ENTER: where the request is a user; DEPLOY_REFUSE: where the last load failed. */
enum deploy_answer placement_ask(struct placement *p, int i, double now, int *set);
bool placement_admits(const struct placement *p, int i);
/* A waiter becomes a user, in the returned set. */
int placement_enter(struct placement *p, int i, double now);
void placement_leave(struct placement *p, int i);
void placement_done(struct placement *p, int i, int set, double now);
/* A user of one set becomes a user of another, ready set. */
void placement_move(struct placement *p, int i, int from, int to, double now);

void placement_want(struct placement *p, int i, double now);
bool placement_unload(struct placement *p, int i);
void placement_pin(struct placement *p, int i, bool pinned);

/* The next thing to do, in a set. DEPLOY_ABANDON: also for a model that another set takes. */
struct placement_decision {
    enum deploy_act act;
    int model, set;
};
struct placement_decision placement_next(struct placement *p, double now);

void placement_sized(struct placement *p, int i, int set, int64_t bytes, int units);
void placement_loaded(struct placement *p, int i, int set, double now);
void placement_failed(struct placement *p, int i, int set, double now);
void placement_unloaded(struct placement *p, int i, int set);

double placement_due(const struct placement *p);

/* Does a request wait for it in this set? */
bool placement_waits(const struct placement *p, int i, int set);
/* Is it being unloaded from some set, now or as soon as it is idle there? */
bool placement_goes(const struct placement *p, int i);

/* A model in all sets together. */
struct placed {
    enum deploy_state state; /* the best of them: ready, else unloading, loading, waiting, failed, known */
    int64_t bytes;           /* on a rank that holds it */
    int n_ready, n_held;     /* sets where it is ready, where it holds memory */
    bool pinned;
    int n_users, n_waiters;
    double last_used;
};
struct placed placement_look(const struct placement *p, int i);

/* Bytes that models hold in the set that holds most. */
int64_t placement_used(const struct placement *p);

#endif
