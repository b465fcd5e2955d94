/* commands/models/shelf.h - tokenizers and templates of the models that are loaded, shared by those of the same files
 * on several sets of ranks, and of the ones that were unloaded last, for their next load: to open them takes tenths of
 * a second. */
#ifndef MODELS_SHELF_H
#define MODELS_SHELF_H

#include "commands/models/discover.h"
#include "commands/texts.h"

#include <pthread.h>

#define SHELF_TEXTS 8 /* that are kept; then those that have lain longest go */

/* The parts of a model that requests need, from its first opening on. */
struct shelved {
    struct texts texts;
    char
        archive[DISCOVER_NAME_BYTES + 8]; /* its other name, NAME.tar.gz, as callers of multi-model endpoints have it */
    uint64_t identity;                    /* of the files that they are from; 0: not to be kept */
    int n_users;                          /* opened models that have them */
    struct shelved *next;                 /* in use, too */
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

/* The parts of this name and identity, which have one user more then; NULL: there are none. */
struct shelved *shelf_take(struct shelf *s, const char *name, uint64_t identity);
/* New ones, with one user. */
void shelf_add(struct shelf *s, struct shelved *one);
/* One user less. NULL: nothing. */
void shelf_put(struct shelf *s, struct shelved *one);

/* Close what was never on the shelf; NULL: nothing. */
void shelved_close(struct shelved *one);

#endif
