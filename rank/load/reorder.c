/* rank/load/reorder.c - see reorder.h. */
#include "rank/load/reorder.h"

#include <stdlib.h>
#include <string.h>

static unsigned nibble(const unsigned char *row, int col)
{
    return row[col / 2] >> (col % 2 * 4) & 15u;
}

/* Reorders a row of codes; columns without an input get code 0, and their activations are 0, too. */
static void reorder_row(unsigned char *to, const unsigned char *from, const struct input_order *order, int cols,
                        int bits)
{
    for (int c = 0; c < cols; c++) {
        int in = order->input[c];
        if (bits == 8)
            to[c] = in < 0 ? 0 : from[in];
        else
            to[c / 2] =
                (unsigned char)((in < 0 ? 0 : nibble(from, in)) << (c % 2 * 4) | (c % 2 == 1 ? to[c / 2] & 15u : 0));
    }
}

static void reorder_rows(unsigned char *codes, unsigned char *row, const struct weight_slot *slot)
{
    size_t pitch = code_pitch(&slot->form, slot->cols);
    for (int r = 0; r < slot->rows; r++) {
        memcpy(row, codes + (size_t)r * pitch, pitch);
        reorder_row(codes + (size_t)r * pitch, row, slot->order, slot->cols, code_bits(slot->form.codes));
    }
}

static int reorder_slot(const struct weight *w, const struct weight_slot *slot, const struct ops *ops, struct queue *q,
                        struct err *e)
{
    size_t pitch = code_pitch(&slot->form, slot->cols), bytes = (size_t)slot->rows * pitch;
    size_t order_bytes = (size_t)slot->cols * sizeof *slot->order->input;
    bool here = ops->shares_host_memory;
    unsigned char *room = err_calloc(e, pitch + (here ? 0 : bytes), 1, "a matrix in the order of its groups");
    if (room == NULL)
        return -1;
    unsigned char *codes = here ? w->data : room + pitch;
    if (!here)
        ops->download(q, codes, w->data, bytes);
    ops->wait(q);
    reorder_rows(codes, room, slot);
    if (!here)
        ops->upload(q, w->data, bytes, codes, bytes, bytes, 1);
    ops->upload(q, (char *)w->data + weight_slot_order_at(slot), order_bytes, slot->order->input, order_bytes,
                order_bytes, 1);
    ops->wait(q);
    free(room);
    return q->err.code == ERR_NONE ? 0 : ERR(e, q->err.code, "%s", q->err.text);
}

int load_reorder(struct network *n, const struct ops *ops, struct queue *q, struct err *e)
{
    for (int i = 0; i < n->map.n_slots; i++)
        if (n->map.slot[i].order != NULL && n->weight[i].data != NULL &&
            reorder_slot(&n->weight[i], &n->map.slot[i], ops, q, e) != 0)
            return -1;
    return 0;
}
