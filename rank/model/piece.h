/* rank/model/piece.h - one piece of a step's rows. Everything but attention itself works on rows, so it can be done
 * with one piece after the other; then the sum of a piece over the ranks runs beside the products of others. */
#ifndef MODEL_PIECE_H
#define MODEL_PIECE_H

#include "rank/model/layer.h"

/* A run whose arrays begin at the piece's first row, if they outlive the piece. Scratch is the same memory for all
 * pieces. */
struct piece {
    struct layer_run run;
    struct activations act;
    struct batch batch;
    int index;
    const void *attended; /* the inputs of the product that ends attention */
};

/* Piece `index` of r->n_pieces. *p points into itself. */
void piece_take(struct piece *p, const struct layer_run *r, int layer, int index);

/* Begins to add up the ranks' shares of the piece, which are in `sum`; comm_end_sum ends it. Enqueued; collective. */
void piece_begin_sum(const struct piece *p, void *sum);

#endif
