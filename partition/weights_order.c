/* partition/weights_order.c - see weights_builder.h: inputs that are not in the order of their groups (desc_act).
 *
 * A rank sorts its inputs by group and keeps the order within a group. If it has all inputs of every group, as with a
 * matrix that is cut along its outputs, groups of columns are those of the checkpoint; otherwise groups have any number
 * of inputs, and columns without an input pad them to a multiple of a smaller unit. */
#include "partition/weights_builder.h"

#include <stdlib.h>
#include <string.h>

#define FINE_GROUP 32 /* columns; 16 for checkpoints with smaller groups */

/* A rank's inputs of a matrix: groups[i] is that of its i-th. */
struct input_share {
    const int32_t *groups;
    int n, n_groups;
    int *count; /* [n_groups] */
};

static bool is_reordered(const int32_t *groups, int64_t n, int64_t group)
{
    for (int64_t i = 0; i < n; i++)
        if (groups[i] != i / group)
            return groups[i] != -1 || i > 0; /* -1 from the beginning: not set */
    return false;
}

static int check_groups(const struct map_builder *b, int tensor, int64_t n, int64_t n_groups)
{
    const int32_t *groups = b->c->order + b->c->order_at[tensor];
    for (int64_t i = 0; i < n; i++)
        if (groups[i] < 0 || groups[i] >= n_groups)
            return ERR(b->e, ERR_UNSUPPORTED,
                       "%s: tensor \"%.120s\" says that input %lld is of group %d, expected 0 to %lld",
                       checkpoint_short_path(b->c->dir), checkpoint_tensor_name(b->c, tensor), (long long)i, groups[i],
                       (long long)n_groups - 1);
    return 0;
}

/* Columns of the share if every group is padded to a multiple of `unit`. */
static int64_t filled_columns(const struct input_share *s, int unit)
{
    int64_t cols = 0;
    for (int g = 0; g < s->n_groups; g++)
        cols += ((int64_t)s->count[g] + unit - 1) / unit * unit;
    return cols;
}

/* Are all groups of the rank complete, except the last one? */
static bool has_whole_groups(const struct input_share *s, int group)
{
    int last = s->n_groups - 1;
    while (last > 0 && s->count[last] == 0)
        last--;
    for (int g = 0; g < last; g++)
        if (s->count[g] % group != 0)
            return false;
    return true;
}

/* The order of `cols` columns, of which each `unit` share a scale; NULL and *e on failure. */
static struct input_order *make_order(const struct input_share *s, int unit, int cols, struct err *e)
{
    size_t n_units = ((size_t)cols + (size_t)unit - 1) / (size_t)unit;
    struct input_order *order =
        err_calloc(e, 1, sizeof *order + ((size_t)cols + n_units) * sizeof(int32_t), "the order of inputs");
    if (order == NULL)
        return NULL;
    order->inputs = s->n;
    order->input = (int32_t *)(void *)(order + 1);
    order->group = order->input + cols;
    for (int c = 0; c < cols; c++)
        order->input[c] = -1;
    for (int g = 0, at = 0; g < s->n_groups; g++) {
        int units = (s->count[g] + unit - 1) / unit;
        for (int u = 0; u < units; u++)
            order->group[at / unit + u] = g;
        s->count[g] = at; /* from here on the column of the group's next input */
        at += units * unit;
    }
    for (int i = 0; i < s->n; i++)
        order->input[s->count[s->groups[i]]++] = i;
    return order;
}

static bool takes_order(enum weight_id id)
{
    return id == WEIGHT_QKV || id == WEIGHT_OUT || id == WEIGHT_MLP_IN || id == WEIGHT_MLP_OUT ||
           id == WEIGHT_SHARED_IN || id == WEIGHT_SHARED_OUT;
}

static bool same_order(const struct weight_slot *slot, const struct input_order *order, const struct code_form *form,
                       int cols)
{
    return slot->order != NULL && order != NULL && slot->cols == cols && code_form_equal(&slot->form, form) &&
           memcmp(slot->order->input, order->input, (size_t)cols * sizeof *order->input) == 0 &&
           memcmp(slot->order->group, order->group, (size_t)code_groups(form, cols) * sizeof *order->group) == 0;
}

/* The parts of a slot share its inputs, so they must agree on the order and the groups. order: NULL for the file's
 * order. */
static int keep_order(struct map_builder *b, struct weight_slot *slot, const char *module, bool first, int cols,
                      const struct code_form *form, struct input_order *order)
{
    if (first) {
        slot->order = order;
        slot->cols = cols;
        return 0;
    }
    bool same = same_order(slot, order, form, cols);
    free(order);
    return same ? 0
                : ERR(b->e, ERR_UNSUPPORTED,
                      "%s: \"%s\" has its inputs in another order than the other parts of %s, expected the same (%s)",
                      checkpoint_short_path(b->c->dir), module, weight_name(slot->id), b->m->quantization.method);
}

static int order_share(struct map_builder *b, struct weight_slot *slot, const char *module, bool first,
                       struct code_form *form, const int32_t *groups, int n_groups)
{
    struct input_share s = {.groups = groups, .n_groups = n_groups};
    s.n = (int)role_axis_length(b->m, b->s, roles[slot->id].in);
    if (s.n == 0)
        return 0;
    s.count = err_calloc(b->e, (size_t)n_groups, sizeof *s.count, "the order of inputs");
    if (s.count == NULL)
        return -1;
    for (int i = 0; i < s.n; i++)
        s.count[groups[i]]++;
    bool whole = has_whole_groups(&s, form->group);
    form->group = whole ? form->group : form->group < FINE_GROUP ? 16 : FINE_GROUP;
    form->first = 0;
    int cols = whole ? s.n : (int)filled_columns(&s, form->group);
    struct input_order *order = make_order(&s, form->group, cols, b->e);
    free(s.count);
    return order != NULL ? keep_order(b, slot, module, first, cols, form, order) : -1;
}

static const struct plane_source *find_index(const struct map_builder *b)
{
    for (int i = 0; i < b->planes.n; i++)
        if (b->planes.plane[i].cells.plane == PLANE_INDEX)
            return &b->planes.plane[i];
    return NULL;
}

int take_order(struct map_builder *b, struct weight_slot *slot, const char *module, bool first, struct code_form *form)
{
    const struct plane_source *index = find_index(b);
    if (index == NULL || b->c->n_orders == 0 || b->c->order_at[index->tensor] < 0)
        return 0;
    enum axis axis = roles[slot->id].in;
    const int32_t *groups = b->c->order + b->c->order_at[index->tensor];
    int64_t all = role_axis_length(b->m, &b->whole, axis), group = index->cells.cell_cols;
    if (!is_reordered(groups, all, group)) {
        if (!first && slot->order != NULL)
            return keep_order(b, slot, module, false, -1, form, NULL);
        return 0;
    }
    int64_t n_groups = (all + group - 1) / group;
    if (!takes_order(slot->id))
        return ERR(b->e, ERR_UNSUPPORTED,
                   "%s: \"%s\" has its inputs in another order than their groups, expected that of attention and dense "
                   "MLPs alone (%s)",
                   checkpoint_short_path(b->c->dir), module, b->m->quantization.method);
    if (check_groups(b, index->tensor, all, n_groups) != 0)
        return -1;
    return order_share(b, slot, module, first, form, groups + role_first_input(b->m, b->s, axis), (int)n_groups);
}
