/* partition/side_tensors.h - small tensors of a checkpoint that must be known before weights are read, since they
 * determine the place and the scale of these. */
#ifndef PARTITION_SIDE_TENSORS_H
#define PARTITION_SIDE_TENSORS_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Read those that the config and the run require: c->kv_scale, c->input_scale, and c->order of matrices with reordered
 * inputs, except experts; m->tied_head and the layers' xielu are what the checkpoint has. -1 and *e, which names the
 * tensor. */
int side_tensors_read(struct checkpoint *c, struct model_config *m, struct err *e);

#endif
