/* rank/model/network_inputs.h - activations that are quantised before products, where a checkpoint declares them so:
 * which weights of a network they meet, and which of these products the device can do. */
#ifndef MODEL_NETWORK_INPUTS_H
#define MODEL_NETWORK_INPUTS_H

#include "rank/model/network.h"

/* A part of network_open: the weights whose activations are quantised point to how; those of which this rank's device
 * cannot do that are counted. Local. */
int network_open_inputs(struct network *n, const struct ops *ops, struct queue *q, struct err *e);

/* refused[n->map.n_slots] is 1 for a weight whose activations this rank's device cannot quantise, else 0. */
void network_refused_inputs(const struct network *n, unsigned char *refused);

/* The same for what the device of any rank cannot do, with the reason, which is copied: no rank does it, since the
 * ranks of a product work together. */
void network_settle_inputs(struct network *n, const unsigned char *refused, const char *why);

#endif
