/* partition/kv_scales.h - the scales that a checkpoint has for keys and values in FP8: what a code counts, in a layer
 * for all KV heads or for each. */
#ifndef PARTITION_KV_SCALES_H
#define PARTITION_KV_SCALES_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Read them into c->kv_scale; it stays NULL where the checkpoint has none: every code then counts what it says. -1 and
 * *e, which names the tensor: scales that are not positive numbers, are there for some layers only, or are of another
 * kind than FP8. */
int kv_scales_read(struct checkpoint *c, const struct model_config *m, struct err *e);

/* Is a tensor of this name one of them? */
bool kv_scales_name(const char *name);

#endif
