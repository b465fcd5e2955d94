/* commands/models/host_cache.h - keeps the files of unloaded models in a host's memory: pages of the page cache, mapped
 * and locked, so that the model's next load does not depend on what the kernel evicted. Bounded in bytes; files of
 * loaded models are evicted first, then those of models unloaded longest ago. One process per host has one. Its thread
 * maps and locks; no other thread waits for that. */
#ifndef MODELS_HOST_CACHE_H
#define MODELS_HOST_CACHE_H

#include "partition/checkpoint.h"
#include "plan/plan.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kept_model;

struct host_cache {
    int64_t limit;       /* bytes */
    atomic_llong locked; /* bytes now */
    atomic_bool ending;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    struct kept_model *first;                /* removed by the thread alone */
    struct kept_model *in_slot[PLAN_MODELS]; /* loaded under this number */
    uint64_t n_uses;
};

/* May this process lock this many bytes? If not, the message says which limit forbids it. Nothing stays locked. */
int host_cache_check(int64_t limit, struct err *e);

/* *c is used until it is closed, and stays where it is. */
int host_cache_open(struct host_cache *c, int64_t limit, struct err *e);
void host_cache_close(struct host_cache *c); /* safe on a zeroed struct */

/* The model of these files was loaded under this number; unloaded again: its files are to be kept. context: the
 * cache. Neither waits. */
void host_cache_loaded(void *context, int model, const struct checkpoint *c);
void host_cache_dropped(void *context, int model);

#endif
