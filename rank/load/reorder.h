/* rank/load/reorder.h - matrices whose inputs are not in the order of their groups: their codes are loaded in the
 * file's order and then reordered by groups (struct input_order), row by row and in place. */
#ifndef LOAD_REORDER_H
#define LOAD_REORDER_H

#include "rank/model/network.h"

/* Reorders all such matrices of this rank, and stores the inputs of their columns on the device. Local, once, after
 * loading. */
int load_reorder(struct network *n, const struct ops *ops, struct queue *q, struct err *e);

#endif
