/* partition/tied_head.h - whether a checkpoint's head is the embedding, as its config says. */
#ifndef PARTITION_TIED_HEAD_H
#define PARTITION_TIED_HEAD_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Unset m->tied_head if the checkpoint has a head with other numbers than the embedding: such a head is used, as by
 * transformers 5. Reads both tensors, up to the first difference. */
int tied_head_read(const struct checkpoint *c, struct model_config *m, struct err *e);

#endif
