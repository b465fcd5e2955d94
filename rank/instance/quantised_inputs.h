/* rank/instance/quantised_inputs.h - --quantized-activations: whether activations are quantised, agreed on by all
 * ranks, and what there is to be said about it. */
#ifndef INSTANCE_QUANTISED_INPUTS_H
#define INSTANCE_QUANTISED_INPUTS_H

#include "rank/model/network.h"
#include "rank/world/world.h"

/* Why activations are not quantised; NULL: they are, as far as the model is concerned. random: its weights are. */
const char *quantised_inputs_refusal(const struct model_config *m, bool random);

/* After network_open on all ranks that compute together: what the device of one of them cannot do, none does, since
 * the ranks of a product share scales. insists: ERR_UNSUPPORTED, on all of them, where there is such a product.
 * Collective. */
int quantised_inputs_agree(struct network *n, const struct world *w, bool insists, const struct ops *ops,
                           struct err *e);

/* The outcome of the option, with the reason where activations are not quantised after all. */
void quantised_inputs_say(const struct network *n, const struct input_ops *ops, bool wanted, bool random);

#endif
