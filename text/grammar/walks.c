/* text/grammar/walks.c - see walks.h. */
#include "text/grammar/walks.h"

#include <stdlib.h>
#include <string.h>

static void drop_user(struct walk *w)
{
    (void)pthread_mutex_lock(&w->lock);
    bool last = --w->n_users == 0;
    (void)pthread_mutex_unlock(&w->lock);
    if (!last)
        return;
    machine_close(&w->machine);
    graph_close(&w->graph);
    (void)pthread_mutex_destroy(&w->lock);
    free(w->state);
    free(w);
}

static struct walk *make_walk(struct walks *all, const struct graph *graph, int start, struct err *e)
{
    struct walk *w = err_calloc(e, 1, sizeof *w, "states of a grammar");
    if (w == NULL)
        return NULL;
    w->start = start;
    w->number = all != NULL ? ++all->n_made : 0;
    w->n_users = 1;
    (void)pthread_mutex_init(&w->lock, NULL);
    if (graph_copy(&w->graph, graph, e) == 0 && machine_open(&w->machine, &w->graph, e) == 0) {
        w->machine.e = &w->err;
        return w;
    }
    drop_user(w);
    return NULL;
}

/* Room for one more run. */
static int grow_states(struct walk *w, struct err *e)
{
    int capacity = 2 * w->capacity + 8;
    int **grown = realloc(w->state, (size_t)capacity * sizeof *grown);
    if (grown == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: states of a grammar");
    w->state = grown;
    w->capacity = capacity;
    return 0;
}

static int add_states(struct walk *w, int *const state[2], struct err *e)
{
    (void)pthread_mutex_lock(&w->lock);
    int rc = w->n_states + 2 > w->capacity ? grow_states(w, e) : 0;
    if (rc == 0) {
        w->state[w->n_states++] = state[0];
        w->state[w->n_states++] = state[1];
        w->n_users++;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return rc;
}

static bool can_join(const struct walk *w)
{
    return w->err.code == ERR_NONE && !w->crowded;
}

/* Its slot in the table; otherwise the slot of the walk that was joined least recently. */
static struct walk **find_walk(struct walks *all, const struct graph *graph, int start)
{
    struct walk **oldest = &all->walk[0];
    for (int i = 0; i < WALKS_KEPT; i++) {
        struct walk **w = &all->walk[i];
        if (*w != NULL && can_join(*w) && (*w)->start == start && graph_equals(&(*w)->graph, graph))
            return w;
        if (*oldest != NULL && (*w == NULL || (*w)->used < (*oldest)->used))
            oldest = w;
    }
    if (*oldest != NULL)
        drop_user(*oldest);
    *oldest = NULL;
    return oldest;
}

struct walk *walk_join(struct walks *all, const struct graph *graph, int start, int *const state[2], struct err *e)
{
    struct walk *alone = NULL, **w = all != NULL && graph->n <= WALKS_MAX_NODES ? find_walk(all, graph, start) : &alone;
    if (*w == NULL && (*w = make_walk(all, graph, start, e)) == NULL)
        return NULL;
    struct walk *joined = add_states(*w, state, e) == 0 ? *w : NULL;
    if (joined != NULL && w != &alone)
        joined->used = ++all->clock;
    if (w == &alone)
        drop_user(alone);
    return joined; /* NOLINT(clang-analyzer-unix.Malloc): add_states has made its taker a user, too */
}

void walk_leave(struct walk *w, int *const state[2])
{
    (void)pthread_mutex_lock(&w->lock);
    for (int i = 0; i < w->n_states; i += 2)
        if (w->state[i] == state[0]) {
            w->n_states -= 2;
            w->state[i] = w->state[w->n_states];
            w->state[i + 1] = w->state[w->n_states + 1];
            break;
        }
    (void)pthread_mutex_unlock(&w->lock);
    drop_user(w);
}

struct walk *walk_part(struct walks *all, struct walk *w, int *const state[2])
{
    struct err why = {0};
    struct walk *own = make_walk(all, &w->graph, w->start, &why);
    if (own == NULL || add_states(own, state, &why) != 0) {
        if (own != NULL)
            drop_user(own);
        return w;
    }
    for (int i = 0; i < 2; i++)
        *state[i] = machine_adopt(&own->machine, &w->machine, *state[i]);
    drop_user(own);
    walk_leave(w, state);
    return own; /* NOLINT(clang-analyzer-unix.Malloc): as in walk_join */
}

void walks_close(struct walks *all)
{
    for (int i = 0; all != NULL && i < WALKS_KEPT; i++)
        if (all->walk[i] != NULL)
            drop_user(all->walk[i]);
    if (all != NULL)
        masks_close(&all->masks);
    free(all);
}

void walk_tidy(struct walk *w)
{
    if (!machine_wants_tidying(&w->machine))
        return;
    (void)pthread_mutex_lock(&w->lock);
    machine_tidy(&w->machine, w->state, w->n_states);
    w->crowded = w->n_states > 2 && machine_is_crowded(&w->machine);
    (void)pthread_mutex_unlock(&w->lock);
}

const uint32_t *walk_mask(struct walks *all, const struct walk *w, int state)
{
    const struct masks_key key = {w->number, state, w->machine.n_tidied};
    return all != NULL ? masks_find(&all->masks, &key) : NULL;
}

void walk_keep(struct walks *all, const struct walk *w, int state, const uint32_t *mask, int n_words)
{
    const struct masks_key key = {w->number, state, w->machine.n_tidied};
    if (all != NULL && !machine_tired(&w->machine) && !w->machine.lossy)
        masks_keep(&all->masks, &key, mask, n_words);
}
