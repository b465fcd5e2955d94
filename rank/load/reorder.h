/* rank/load/reorder.h - matrices whose inputs are not in the order of their groups: codes were loaded in the file's
 * order, and are put into that of groups (struct input_order), row by row and in place. */
#ifndef LOAD_REORDER_H
#define LOAD_REORDER_H

#include "rank/model/network.h"

/* All such matrices of this rank, and what their columns take on the device. Local, once, after loading. */
int load_reorder(struct network *n, const struct ops *ops, struct queue *q, struct err *e);

#endif
