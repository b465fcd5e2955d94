/* partition/tensor_names.h - the names in a checkpoint of the weights of a family's sources. Only for
 * partition/. */
#ifndef PARTITION_TENSOR_NAMES_H
#define PARTITION_TENSOR_NAMES_H

#include "partition/families.h"

/* The prefix of a checkpoint's names. */
struct tensor_prefixes {
    const char *inside, *outside; /* outside: for names that never carry the family's prefix */
};

/* All borrowed. */
struct tensor_names {
    const struct family *family;
    const struct model_config *m;
    const struct checkpoint *c;
    struct tensor_prefixes prefixes;
    int form; /* the form of the checkpoint, among sources with several forms */
};

/* The name under which a source's tensor is looked up; expert 0 where it contains none. */
struct tensor_place {
    int layer, expert;
};

void tensor_names_open(struct tensor_names *n, const struct family *family, const struct model_config *m,
                       const struct checkpoint *c);

/* The tensor of a source, or -1, and its name. A tied table may be stored under the head's name only. */
int tensor_names_find(const struct tensor_names *n, const struct weight_source *source, struct tensor_place at,
                      char *name, size_t bytes);

/* The name without ".weight": that of the module. */
void tensor_names_module(const struct tensor_names *n, const struct weight_source *source, struct tensor_place at,
                         char *name, size_t bytes);

/* Does every expert have a tensor of its own? */
bool tensor_names_expert(const struct weight_source *source);

#endif
