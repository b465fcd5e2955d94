/* partition/drafting.h - tensors other than weights in the checkpoint of a head that drafts (EAGLE-3). Rank 0. */
#ifndef PARTITION_DRAFTING_H
#define PARTITION_DRAFTING_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Find out whether the head has an embedding of its own (m->drafting.embeds), and read c->drafted if it drafts only a
 * part of the vocabulary. Does nothing if m is not such a head. -1 and *e, which names the tensor. */
int drafting_read(struct checkpoint *c, struct model_config *m, struct err *e);

#endif
