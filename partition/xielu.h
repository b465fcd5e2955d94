/* partition/xielu.h - the constants of xIELU, which a checkpoint has for every layer. */
#ifndef PARTITION_XIELU_H
#define PARTITION_XIELU_H

#include "partition/checkpoint.h"
#include "partition/model.h"

/* Read those of all layers into m->layer[].xielu if m->activation_trained. -1 and *e, which names the tensor. */
int xielu_read(const struct checkpoint *c, struct model_config *m, struct err *e);

#endif
