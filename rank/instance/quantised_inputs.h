/* rank/instance/quantised_inputs.h - --quantized-activations: the ranks' agreement on it, and its report. */
#ifndef INSTANCE_QUANTISED_INPUTS_H
#define INSTANCE_QUANTISED_INPUTS_H

#include "rank/model/network.h"
#include "rank/world/world.h"

/* The reason why activations are not quantised; NULL: the model allows it. random: its weights are random. */
const char *quantised_inputs_refusal(const struct model_config *m, bool random);

/* To be called after network_open on all ranks that compute together: a product that one rank's device cannot quantise
 * is not quantised on any, since the ranks of a product share scales. insists: such a product is ERR_UNSUPPORTED on all
 * of them. Collective. */
int quantised_inputs_agree(struct network *n, const struct world *w, bool insists, const struct ops *ops,
                           struct err *e);

/* The outcome of the option, with the reason where activations are not quantised after all. */
void quantised_inputs_say(const struct network *n, const struct input_ops *ops, bool wanted, bool random);

#endif
