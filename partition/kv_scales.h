/* partition/kv_scales.h - the scales that a checkpoint has for keys and values in FP8: factors of the codes, one per
 * layer or one per KV head. */
#ifndef PARTITION_KV_SCALES_H
#define PARTITION_KV_SCALES_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Read them into c->kv_scale, which stays NULL if the checkpoint has none: all scales are 1 then. -1 and *e, which
 * names the tensor, if scales are not positive, exist for some layers only, or belong to a scheme other than FP8. */
int kv_scales_read(struct checkpoint *c, const struct model_config *m, struct err *e);

/* Is a tensor of this name one of them? */
bool kv_scales_name(const char *name);

#endif
