/* rank/model/network_inputs.c - see network_inputs.h. */
#include "rank/model/network_inputs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* The form of quantised activations before the product with a quantised slot. */
static struct input_form form_of(const struct network *n, int number)
{
    const struct quantization *q = &n->config.quantization;
    const struct weight_slot *slot = &n->map.slot[number];
    int whole = weight_inputs(&n->config, slot->id), group = q->input_group > 0 ? q->input_group : INT_MAX;
    return (struct input_form){.codes = slot->form.codes,
                               .scale = slot->input_scale,
                               .most = q->input_most,
                               .group = group,
                               .first = weight_first_input(&n->config, &n->shard, slot->id),
                               .n_groups = group < whole ? (whole + group - 1) / group : 1,
                               .shared = weight_is_cut_along_inputs(&n->config, slot->id),
                               .blocks = weight_rows_alike(&n->map, number, INPUT_BLOCK)};
}

static bool is_declared(const struct network *n, int slot)
{
    int codes = (int)n->map.slot[slot].form.codes;
    return n->input_form != NULL && (codes == CODES_E4M3 || codes == CODES_INT8);
}

int network_open_inputs(struct network *n, const struct ops *ops, struct queue *q, struct err *e)
{
    if (!n->config.quantised_inputs)
        return 0;
    n->input_form = err_calloc(e, (size_t)n->map.n_slots, sizeof *n->input_form, "forms of activations");
    for (int i = 0; i < n->map.n_slots && n->input_form != NULL; i++) {
        if (!is_declared(n, i))
            continue;
        n->input_form[i] = form_of(n, i);
        const char *why =
            ops->inputs->refusal(q, &n->weight[i], &n->input_form[i], weight_is_of_experts(n->map.slot[i].id));
        if (why != NULL)
            (void)snprintf(n->inputs_refusal, sizeof n->inputs_refusal, "%s", why);
        n->n_inputs[why == NULL]++;
        n->weight[i].inputs = why == NULL ? &n->input_form[i] : NULL;
    }
    n->config.quantised_inputs = n->n_inputs[true] > 0;
    return n->input_form != NULL ? 0 : -1;
}

void network_refused_inputs(const struct network *n, unsigned char *refused)
{
    for (int i = 0; i < n->map.n_slots; i++)
        refused[i] = is_declared(n, i) && n->weight[i].inputs == NULL;
}

void network_settle_inputs(struct network *n, const unsigned char *refused, const char *why)
{
    n->n_inputs[false] = n->n_inputs[true] = 0;
    for (int i = 0; i < n->map.n_slots; i++) {
        if (!is_declared(n, i))
            continue;
        n->n_inputs[!refused[i]]++;
        n->weight[i].inputs = refused[i] ? NULL : n->weight[i].inputs;
    }
    (void)snprintf(n->inputs_refusal, sizeof n->inputs_refusal, "%s", why);
    n->config.quantised_inputs = n->n_inputs[true] > 0;
}
