/* commands/models/model_memory.h - the memory of a rank for models: weights and working memory of each, and one arena
 * for the keys and values of all (rank/model/kv_arena.h). */
#ifndef MODELS_MODEL_MEMORY_H
#define MODELS_MODEL_MEMORY_H

#include "rank/instance/instance.h"

struct model_memory { /* bytes, equal on all ranks */
    int64_t all, kv;  /* kv: of these, for keys and values */
};

/* all, kv: rank 0's options; not positive, or negative: not given. Then models get eight tenths of the free memory of
 * the rank with the least, and keys and values half of that. A failure ends the job. Collective. */
void model_memory_share(struct model_memory *m, const struct instance *ground, int64_t all, int64_t kv, struct world *w,
                        struct err *e);

#endif
