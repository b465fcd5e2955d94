/* rank/instance/quantised_inputs.c - see quantised_inputs.h. */
#include "rank/instance/quantised_inputs.h"
#include "base/log.h"
#include "rank/model/network_inputs.h"
#include "rank/world/agree.h"
#include "rank/world/fatal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *quantised_inputs_refusal(const struct model_config *m, bool random)
{
    if (m->quantization.activations == ACTIVATIONS_WIDE)
        return "the checkpoint declares none";
    if (!m->quantization.inputs_known)
        return "the checkpoint declares them in a way that is not implemented, expected FP8 or symmetric INT8, static "
               "or for each token";
    if (m->latent.rank > 0)
        return "latent attention computes with other activations than the checkpoint declares";
    return random && m->quantization.activations == ACTIVATIONS_STATIC ? "weights are random" : NULL;
}

/* The reason of the lowest rank that has one, or "". */
static void share_reason(char *why, size_t bytes, const struct world *w)
{
    int mine = why[0] != '\0' ? w->rank : w->n_ranks, lowest = w->n_ranks;
    MPI_CHECK(MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, w->comm));
    if (lowest < w->n_ranks)
        MPI_CHECK(MPI_Bcast(why, (int)bytes, MPI_CHAR, lowest, w->comm));
}

/* All ranks have the same weights, in the same order, and have opened them with the same config. */
static int share_refusals(struct network *n, const struct world *w, struct err *e)
{
    unsigned char *refused = err_calloc(e, (size_t)n->map.n_slots, sizeof *refused, "forms of activations");
    char why[sizeof n->inputs_refusal];
    if (agree_failed(w, e)) {
        free(refused);
        return -1;
    }
    memcpy(why, n->inputs_refusal, sizeof why);
    network_refused_inputs(n, refused);
    share_reason(why, sizeof why, w);
    MPI_CHECK(MPI_Allreduce(MPI_IN_PLACE, refused, n->map.n_slots, MPI_UNSIGNED_CHAR, MPI_MAX, w->comm));
    network_settle_inputs(n, refused, why);
    free(refused);
    return 0;
}

int quantised_inputs_agree(struct network *n, const struct world *w, bool insists, const struct ops *ops, struct err *e)
{
    int declared = n->input_form != NULL, anywhere = declared;
    MPI_CHECK(MPI_Allreduce(&declared, &anywhere, 1, MPI_INT, MPI_MAX, w->comm));
    if (!anywhere || share_refusals(n, w, e) != 0 || !insists || n->n_inputs[false] == 0)
        return e->code == ERR_NONE ? 0 : -1;
    return ERR(e, ERR_UNSUPPORTED,
               "--quantized-activations on: not implemented on %s for %s (%d of %d matrices), expected auto or off",
               ops->name, n->inputs_refusal, n->n_inputs[false], n->n_inputs[false] + n->n_inputs[true]);
}

void quantised_inputs_say(const struct network *n, const struct input_ops *ops, bool wanted, bool random)
{
    char few[60] = "";
    if (!wanted)
        return;
    if (!n->config.quantised_inputs) {
        const char *why = quantised_inputs_refusal(&n->config, random);
        log_note("--quantized-activations: activations are not quantised: %s%s", why != NULL ? why : n->inputs_refusal,
                 why == NULL ? " (not implemented on this device)" : "");
        return;
    }
    if (ops->rows_as_they_are > 0)
        (void)snprintf(few, sizeof few, ", in steps of more than %d tokens", ops->rows_as_they_are);
    log_note("--quantized-activations: activations are quantised before %d products%s", n->n_inputs[true], few);
    if (n->n_inputs[false] > 0)
        log_note("--quantized-activations: not before %d: not implemented on this device for %s", n->n_inputs[false],
                 n->inputs_refusal);
}
