/* partition/drafting.c - see drafting.h; and whether a head fits a model (partition/model.h). */
#include "partition/drafting.h"

#include <stdlib.h>
#include <string.h>

#define MAP "d2t" /* per row: its token minus its row number */

static bool has_embedding(const struct checkpoint *c)
{
    return checkpoint_find(c, "embed_tokens.weight") >= 0 || checkpoint_find(c, "model.embed_tokens.weight") >= 0;
}

/* The numbers of the map are differences, so that 0 everywhere means the first tokens. */
static int take_tokens(struct checkpoint *c, const struct model_config *m, const int64_t *difference, struct err *e)
{
    bool *taken = err_calloc(e, (size_t)m->vocab, sizeof *taken, "tokens that are drafted");
    c->drafted = err_calloc(e, (size_t)m->drafting.vocab, sizeof *c->drafted, "tokens that are drafted");
    for (int i = 0; i < m->drafting.vocab && e->code == ERR_NONE; i++) {
        int64_t token = -1;
        if (__builtin_add_overflow(difference[i], i, &token) || token < 0 || token >= m->vocab || taken[token])
            ERR(e, ERR_INPUT, "%s: \"" MAP "\"[%d] is %lld, expected a token below %d that no other row has",
                checkpoint_short_path(c->dir), i, (long long)difference[i], m->vocab);
        else
            taken[token] = true;
        c->drafted[i] = (int32_t)token;
    }
    c->n_drafted = e->code == ERR_NONE ? m->drafting.vocab : 0;
    free(taken);
    return e->code == ERR_NONE ? 0 : -1;
}

/* A head that drafts every token keeps their order: row i is token i. */
static int expect_own_order(const struct checkpoint *c, const struct model_config *m, const int64_t *difference,
                            struct err *e)
{
    for (int i = 0; i < m->vocab; i++)
        if (difference[i] != 0)
            return ERR(e, ERR_UNSUPPORTED, "%s: \"" MAP "\"[%d] is %lld, expected 0: the head drafts every token",
                       checkpoint_short_path(c->dir), i, (long long)difference[i]);
    return 0;
}

int drafting_read(struct checkpoint *c, struct model_config *m, struct err *e)
{
    if (!model_is_eagle(m))
        return 0;
    m->drafting.embeds = has_embedding(c);
    int tensor = checkpoint_find(c, MAP);
    if (tensor < 0 && m->drafting.vocab == m->vocab)
        return 0;
    if (tensor < 0)
        return ERR(e, ERR_INPUT,
                   "%s: tensor \"" MAP "\" is missing; config.json needs it, since \"draft_vocab_size\" is %d and "
                   "\"vocab_size\" %d",
                   checkpoint_short_path(c->dir), m->drafting.vocab, m->vocab);
    const struct tensor_info *t = &c->tensor[tensor];
    if (strcmp(c->text + t->dtype, "I64") != 0 || t->n_dims != 1 || t->shape[0] != m->drafting.vocab)
        return ERR(e, ERR_UNSUPPORTED, "%s: tensor \"" MAP "\" is %s of %d dimensions, expected I64 of [%d]",
                   checkpoint_short_path(c->dir), c->text + t->dtype, t->n_dims, m->drafting.vocab);
    int64_t *difference = err_calloc(e, (size_t)m->drafting.vocab, sizeof *difference, "tokens that are drafted");
    if (difference != NULL && checkpoint_read_tensor(c, tensor, difference, e) == 0)
        (void)(m->drafting.vocab == m->vocab ? expect_own_order(c, m, difference, e)
                                             : take_tokens(c, m, difference, e));
    free(difference);
    return e->code == ERR_NONE ? 0 : -1;
}

/* EAGLE's default taps: the inputs of these layers. */
static int choose_taps(struct model_drafting *d, int n_layers, const char *name, struct err *e)
{
    const int usual[MODEL_TAPS] = {2, n_layers / 2, n_layers - 3};
    for (int i = 0; i < MODEL_TAPS; i++) {
        d->tap[i] = d->taps_known ? d->tap[i] : usual[i];
        if (d->tap[i] < 0 || d->tap[i] > n_layers)
            return ERR(e, ERR_USAGE, "draft model %s: it reads the input of layer %d, the model has %d layers", name,
                       d->tap[i], n_layers);
    }
    d->taps_known = true;
    return 0;
}

int model_predicting(struct model_config *head, const struct model_config *m, const char *name, struct err *e)
{
    if (m->n_predicting == 0)
        return ERR(
            e, ERR_USAGE,
            "%s: %s has no layers that predict further tokens, expected \"num_nextn_predict_layers\" in its config",
            name, m->model_type);
    if (m->quantised_inputs)
        return ERR(e, ERR_UNSUPPORTED,
                   "%s: layers that predict further tokens with --quantized-activations are not implemented", name);
    if (m->embed_dim != m->hidden || m->embed_scale > 0 || m->parallel_residual || m->post_norm)
        return ERR(e, ERR_UNSUPPORTED, "%s: layers of %s that predict further tokens are not implemented", name,
                   m->model_type);
    *head = *m;
    head->first_layer = m->n_layers;
    head->n_layers = 1;
    head->n_predicting = m->n_predicting - 1;
    head->layer[0] = m->layer[m->n_layers - 1];
    head->final_norm = false; /* the layer's own norm */
    head->kv_fp8 = head->weights_fp8 = head->head_fp8 = head->quantised_inputs = false;
    head->drafting = (struct model_drafting){
        .n_taps = 1, .taps_known = true, .tapped = m->hidden, .vocab = m->vocab, .predicts = true};
    return 0;
}

int model_draft_for(struct model_config *head, const struct model_config *m, const char *name, struct err *e)
{
    struct model_drafting *d = &head->drafting;
    if (head->vocab != m->vocab)
        return ERR(e, ERR_USAGE, "draft model %s: a vocabulary of %d tokens, expected the model's %d", name,
                   head->vocab, m->vocab);
    if (!model_is_eagle(head))
        return 0;
    if (d->tapped != m->hidden)
        return ERR(e, ERR_USAGE, "draft model %s: a head for a model of hidden size %d, found %d", name, d->tapped,
                   m->hidden);
    bool plain = m->embed_dim == m->hidden && m->embed_scale == 0 && !m->embed_norm && m->position != POSITION_LEARNED;
    if (!d->embeds && (head->hidden != m->hidden || !plain))
        return ERR(
            e, ERR_UNSUPPORTED,
            "draft model %s: it has no \"embed_tokens.weight\", and the embedding of %s (%d columns) cannot serve "
            "a head of hidden size %d",
            name, m->model_type, m->embed_dim, head->hidden);
    return choose_taps(d, m->n_layers, name, e);
}
