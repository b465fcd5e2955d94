/* partition/tied_head.c - see tied_head.h. */
#include "partition/tied_head.h"

#include "partition/families.h"
#include "partition/tensor_names.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES ((size_t)4 << 20)

static int find_tensor(const struct tensor_names *n, enum weight_id id)
{
    char name[128];
    for (const struct weight_source *source = n->family->source; source->name != NULL; source++)
        if (source->id == id)
            return tensor_names_find(n, source, (struct tensor_place){-1, 0}, name, sizeof name);
    return -1;
}

/* A head of another shape than the embedding's cannot be used. */
static bool comparable(const struct checkpoint *c, int a, int b)
{
    const struct tensor_info *s = &c->tensor[a], *t = &c->tensor[b];
    return a != b && s->n_dims == 2 && t->n_dims == 2 && s->shape[0] == t->shape[0] && s->shape[1] == t->shape[1];
}

/* Numbers of different types count as different. */
static bool are_equal(const struct checkpoint *c, int a, int b, struct err *e)
{
    uint64_t all = c->tensor[a].bytes;
    if (strcmp(c->text + c->tensor[a].dtype, c->text + c->tensor[b].dtype) != 0)
        return false;
    char *piece = err_calloc(e, 2, PIECE_BYTES, "the comparison of head and embedding");
    bool equal = piece != NULL;
    for (uint64_t at = 0; equal && at < all; at += PIECE_BYTES) {
        size_t n = all - at < PIECE_BYTES ? (size_t)(all - at) : PIECE_BYTES;
        equal = checkpoint_read_part(c, a, at, n, piece, e) == 0 &&
                checkpoint_read_part(c, b, at, n, piece + PIECE_BYTES, e) == 0 &&
                memcmp(piece, piece + PIECE_BYTES, n) == 0;
    }
    free(piece);
    return equal;
}

int tied_head_read(const struct checkpoint *c, struct model_config *m, struct err *e)
{
    struct tensor_names names;
    if (!m->tied_head)
        return 0;
    tensor_names_open(&names, family_find(m->model_type), m, c);
    int embed = find_tensor(&names, WEIGHT_EMBED), head = find_tensor(&names, WEIGHT_HEAD);
    if (embed >= 0 && head >= 0 && comparable(c, embed, head))
        m->tied_head = are_equal(c, embed, head, e);
    return e->code == ERR_NONE ? 0 : -1;
}
