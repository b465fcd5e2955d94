/* partition/weights_map.c - the roles that may be quantised, the contents of a built map, and the bytes of it that a
 * step reads: see weights.h. */
#include "partition/weights.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weight_is_of_experts(enum weight_id id)
{
    return id == WEIGHT_EXPERTS_IN || id == WEIGHT_EXPERTS_OUT;
}

bool weight_may_be_quantised(enum weight_id id)
{
    return id == WEIGHT_QKV || id == WEIGHT_OUT || id == WEIGHT_MLP_IN || id == WEIGHT_MLP_OUT ||
           weight_is_of_experts(id) || id == WEIGHT_SHARED_IN || id == WEIGHT_SHARED_OUT || id == WEIGHT_HEAD ||
           id == WEIGHT_QUERY || id == WEIGHT_QUERY_DOWN || id == WEIGHT_QUERY_UP || id == WEIGHT_LATENT ||
           id == WEIGHT_KEY_UP || id == WEIGHT_VALUE_UP;
}

bool weight_is_cut_along_inputs(const struct model_config *m, enum weight_id id)
{
    return id == WEIGHT_OUT || id == WEIGHT_MLP_OUT || (id == WEIGHT_EXPERTS_OUT && !m->whole_experts) ||
           id == WEIGHT_SHARED_OUT;
}

void weight_map_free(struct weight_map *map)
{
    for (int i = 0; i < map->n_slots; i++)
        free(map->slot[i].order);
    free(map->slot);
    free(map->slice);
    memset(map, 0, sizeof *map);
}

int weight_map_find(const struct weight_map *map, enum weight_id id, int layer)
{
    int low = 0, high = map->n_slots - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        const struct weight_slot *slot = &map->slot[middle];
        if (slot->layer == layer && slot->id == id)
            return middle;
        if (slot->layer < layer || (slot->layer == layer && slot->id < id))
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

size_t weight_slot_order_at(const struct weight_slot *slot)
{
    return (code_bytes(&slot->form, slot->rows, slot->cols) + CODES_ALIGN - 1) / CODES_ALIGN * CODES_ALIGN;
}

size_t weight_slot_bytes(const struct weight_slot *slot)
{
    if (slot->order != NULL)
        return weight_slot_order_at(slot) + (size_t)slot->cols * sizeof *slot->order->input;
    if (slot->form.codes != CODES_NONE)
        return code_bytes(&slot->form, slot->rows, slot->cols);
    return (size_t)slot->rows * (size_t)slot->cols * dtype_bytes(slot->type);
}

size_t weight_map_bytes(const struct weight_map *map)
{
    size_t bytes = 0;
    for (int i = 0; i < map->n_slots; i++)
        bytes += weight_slot_bytes(&map->slot[i]);
    return bytes;
}

void weight_map_unfilled(const struct weight_map *map, int64_t *n)
{
    for (int i = 0; i < map->n_slots; i++)
        n[i] = (int64_t)map->slot[i].rows * map->slot[i].cols;
    for (int i = 0; i < map->n_slices; i++)
        if (map->slot[map->slice[i].slot].form.codes == CODES_NONE)
            n[map->slice[i].slot] -= map->slice[i].rows * map->slice[i].cols;
}

bool weight_rows_alike(const struct weight_map *map, int slot, int rows)
{
    for (int i = 0; i < map->n_slices; i++) {
        const struct weight_slice *part = &map->slice[i];
        const struct weight_cells *k = &part->cells;
        if (part->slot == slot && k->plane == PLANE_SCALES &&
            (k->cell_rows % rows != 0 || k->out % rows != 0 || part->dst_row % rows != 0))
            return false;
    }
    return true;
}

bool weight_becomes_fp8(const struct model_config *m, const struct weight_slot *slot)
{
    if (slot->form.codes != CODES_NONE || !weight_may_be_quantised(slot->id))
        return false;
    return slot->id == WEIGHT_HEAD ? m->head_fp8 : m->weights_fp8;
}

struct code_form weight_fp8_form(void)
{
    return (struct code_form){.codes = CODES_E4M3, .scale = SCALE_F32, .group = INT_MAX};
}

size_t weight_map_fp8_bytes(const struct weight_map *map, const struct model_config *m, size_t *most)
{
    const struct code_form form = weight_fp8_form();
    size_t bytes = weight_map_bytes(map);
    *most = bytes;
    for (int i = 0; i < map->n_slots; i++) {
        const struct weight_slot *slot = &map->slot[i];
        if (!weight_becomes_fp8(m, slot))
            continue;
        size_t made = code_bytes(&form, slot->rows, slot->cols);
        *most = bytes + made > *most ? bytes + made : *most;
        bytes += made - weight_slot_bytes(slot);
    }
    /* A head that shares the embedding's matrix becomes a second matrix, the last one. */
    int embed = m->head_fp8 && m->tied_head ? weight_map_find(map, WEIGHT_EMBED, -1) : -1;
    bytes += embed >= 0 ? code_bytes(&form, map->slot[embed].rows, map->slot[embed].cols) : 0;
    *most = bytes > *most ? bytes : *most;
    return bytes;
}

void weight_map_make_fp8(struct weight_map *map, const struct model_config *m)
{
    for (int i = 0; i < map->n_slots; i++)
        if (weight_becomes_fp8(m, &map->slot[i]))
            map->slot[i].form = weight_fp8_form();
}

double weight_map_step_bytes(const struct weight_map *map, const struct model_config *m, int n_sequences)
{
    const struct routing *how = &m->experts.routing;
    const struct code_form form = weight_fp8_form();
    double left_out = how->n_experts > 0 ? 1 - (double)how->n_chosen / how->n_experts : 0, bytes = 0;
    for (int i = 0; i < map->n_slots; i++) {
        const struct weight_slot *slot = &map->slot[i];
        bool row_only = (slot->id == WEIGHT_EMBED && (!m->tied_head || m->head_fp8)) || slot->id == WEIGHT_POSITION;
        if (slot->id == WEIGHT_EMBED && m->tied_head && m->head_fp8)
            bytes += (double)code_bytes(&form, slot->rows, slot->cols);
        double part = row_only ? 0 : weight_is_of_experts(slot->id) ? 1 - pow(left_out, n_sequences) : 1;
        bytes += part * (double)weight_slot_bytes(slot);
    }
    return bytes;
}
