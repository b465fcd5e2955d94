/* partition/side_tensors.h - small tensors of a checkpoint that must be known before weights are read, since they say
 * where these go and what they count. */
#ifndef PARTITION_SIDE_TENSORS_H
#define PARTITION_SIDE_TENSORS_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Read what the config and the run ask for: c->kv_scale, c->input_scale, and c->order of the matrices whose inputs are
 * reordered, but for those of experts. -1 and *e, which names the tensor. */
int side_tensors_read(struct checkpoint *c, const struct model_config *m, struct err *e);

#endif
