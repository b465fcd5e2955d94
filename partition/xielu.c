/* partition/xielu.c - see xielu.h. */
#include "partition/xielu.h"

#include "partition/tensor_names.h"

#include <math.h>

/* Finds "layers.N.mlp.act_fn.NAME" and reads its number. */
static int read_constant(const struct tensor_names *n, int layer, const char *source, float *to, struct err *e)
{
    char name[128];
    const struct weight_source constant = {WEIGHT_COUNT, PART_WHOLE, source, false, 0};
    int tensor = tensor_names_find(n, &constant, (struct tensor_place){layer, 0}, name, sizeof name);
    if (tensor < 0)
        return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" is missing, a constant of the activation xielu",
                   checkpoint_short_path(n->c->dir), name);
    if (checkpoint_read_number(n->c, tensor, to, e) != 0)
        return -1;
    return isfinite(*to) ? 0
                         : ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" is %g, expected a finite number",
                               checkpoint_short_path(n->c->dir), name, (double)*to);
}

static float softplus(float x)
{
    return (float)(x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)));
}

int xielu_read(const struct checkpoint *c, struct model_config *m, struct err *e)
{
    struct tensor_names names;
    if (!m->activation_trained)
        return 0;
    tensor_names_open(&names, family_find(m->model_type), m, c);
    for (int i = 0; i < m->n_layers; i++) {
        struct xielu read, *x = &m->layer[i].xielu;
        if (read_constant(&names, i, "layers.%d.mlp.act_fn.alpha_p", &read.positive, e) != 0 ||
            read_constant(&names, i, "layers.%d.mlp.act_fn.alpha_n", &read.negative, e) != 0 ||
            read_constant(&names, i, "layers.%d.mlp.act_fn.beta", &read.beta, e) != 0 ||
            read_constant(&names, i, "layers.%d.mlp.act_fn.eps", &read.eps, e) != 0)
            return -1;
        *x = (struct xielu){softplus(read.positive), read.beta + softplus(read.negative), read.beta, read.eps};
    }
    return 0;
}
