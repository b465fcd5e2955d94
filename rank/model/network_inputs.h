/* rank/model/network_inputs.h - activations that are quantised before products, as a checkpoint declares: the weights
 * of a network to which this applies, and the products that the device supports. */
#ifndef MODEL_NETWORK_INPUTS_H
#define MODEL_NETWORK_INPUTS_H

#include "rank/model/network.h"

/* A part of network_open: sets how activations are quantised for each such weight; counts the products that this rank's
 * device does not support. Local. */
int network_open_inputs(struct network *n, const struct ops *ops, struct queue *q, struct err *e);

/* refused[n->map.n_slots] is 1 for a weight whose activations this rank's device cannot quantise, else 0. */
void network_refused_inputs(const struct network *n, unsigned char *refused);

/* The same for products that the device of any rank does not support, with the reason, which is copied: then no rank
 * quantises, since the ranks of a product work together. */
void network_settle_inputs(struct network *n, const unsigned char *refused, const char *why);

#endif
