/* commands/models/shelf.h - a cache of tokenizers and templates: of loaded models, shared between the sets of ranks
 * that have the same files, and of recently unloaded ones, for their next load. Opening them takes tenths of a
 * second. */
#ifndef MODELS_SHELF_H
#define MODELS_SHELF_H

#include "commands/models/discover.h"
#include "commands/texts.h"

#include <pthread.h>

#define SHELF_TEXTS 8 /* maximum of unused entries; the least recently used go first */

/* The parts of a model that requests need, kept since its first opening. */
struct shelved {
    struct texts texts;
    char archive[DISCOVER_NAME_BYTES + 8]; /* its other name, NAME.tar.gz, used by callers of multi-model endpoints */
    uint64_t identity;                     /* identity of their files; 0: do not cache */
    int n_users;                           /* opened models that use them */
    struct shelved *next;                  /* in use, too */
};

/* Any thread may use it. */
struct shelf {
    pthread_mutex_t lock;
    struct shelved *kept[SHELF_TEXTS]; /* [n] the oldest first; owned */
    int n;
    struct shelved *used; /* linked by `next` */
};

void shelf_open(struct shelf *s);
void shelf_close(struct shelf *s);

/* The parts of this name and identity, with one more user; NULL: there are none. */
struct shelved *shelf_take(struct shelf *s, const char *name, uint64_t identity);
/* New ones, with one user. */
void shelf_add(struct shelf *s, struct shelved *one);
/* Drops one user. NULL: no-op. */
void shelf_put(struct shelf *s, struct shelved *one);

/* Closes parts that were never on the shelf; NULL: no-op. */
void shelved_close(struct shelved *one);

#endif
