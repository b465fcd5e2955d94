/* partition/drafting.h - what the checkpoint of a head that drafts for another model (EAGLE-3) has beside its weights.
 * Rank 0. */
#ifndef PARTITION_DRAFTING_H
#define PARTITION_DRAFTING_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* See whether the head has an embedding of its own (m->drafting.embeds), and read c->drafted where it drafts fewer
 * tokens than there are. Nothing where m is no such head. -1 and *e, which names the tensor. */
int drafting_read(struct checkpoint *c, struct model_config *m, struct err *e);

#endif
