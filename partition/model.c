/* partition/model.c - see model.h: the part that is common to all families; the rest is in families/. */
#include "partition/model.h"

#include "base/json.h"
#include "partition/checkpoint.h"
#include "partition/config.h"
#include "partition/families.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_MAX_BYTES ((size_t)16 << 20)

/* An unknown model_type, or without one an unknown architecture. */
static void refuse_family(const struct config *c, const char *type, const char *architecture)
{
    char names[FAMILY_NAMES_BYTES];
    int n = family_names(names, sizeof names, NULL);
    int n_alike = type != NULL ? family_names(names, 200, type) : 0;
    ERR(c->e, ERR_UNSUPPORTED,
        "%s: \"%s\" is \"%.60s\"%s, which is not implemented; expected one of the %d that lockstep inspect --help "
        "lists%s%s",
        c->what, type != NULL ? "model_type" : "architectures", type != NULL ? type : architecture,
        config_has(c, "text_config") ? " (a wrapper around \"text_config\")" : "", n, n_alike > 0 ? ", such as " : "",
        n_alike > 0 ? names : "");
}

static const struct family *find_family(const struct config *c)
{
    const struct family *family = NULL;
    if (eagle3_is(c))
        return &family_eagle3;
    const char *type = json_get_string(c->json, "model_type", NULL, c->what, c->e);
    const char *architecture = json_string_value(json_array_get(json_object_get(c->json, "architectures"), 0));
    if (type != NULL)
        family = family_find(type);
    else if (architecture != NULL)
        family = family_of_architecture(architecture);
    if (family != NULL)
        return family;
    if (type == NULL && architecture == NULL)
        ERR(c->e, ERR_INPUT,
            "%s: neither \"model_type\" nor \"architectures\" is there, expected a model_type of those that "
            "lockstep inspect --help lists",
            c->what);
    else
        refuse_family(c, type, architecture);
    return NULL;
}

/* The matrices of a layer's experts are one array, whose number of rows must fit an int. */
static void check_experts(const struct model_config *m, const struct config *c)
{
    const struct routing *r = &m->experts.routing;
    int64_t widest = 2 * (int64_t)m->experts.ffn > m->hidden ? 2 * (int64_t)m->experts.ffn : m->hidden;
    if (r->n_experts == 0)
        return;
    if (r->n_chosen > r->n_experts)
        ERR(c->e, ERR_INPUT, "%s: \"num_experts_per_tok\" is %d, expected at most the %d experts of a layer", c->what,
            r->n_chosen, r->n_experts);
    if (r->n_groups > 1 &&
        (r->n_experts % r->n_groups != 0 || r->n_experts / r->n_groups < (r->groups_by_best ? 1 : 2) ||
         r->n_kept > r->n_groups || r->n_kept * (r->n_experts / r->n_groups) < r->n_chosen))
        ERR(c->e, ERR_INPUT,
            "%s: \"n_group\" is %d, \"topk_group\" %d: expected equal groups of the %d experts, %s in each at least, "
            "and %d experts in those that are kept",
            c->what, r->n_groups, r->n_kept, r->n_experts, r->groups_by_best ? "one" : "two", r->n_chosen);
    if (r->n_experts * widest > INT_MAX)
        ERR(c->e, ERR_UNSUPPORTED,
            "%s: %d experts of %d columns, hidden size %d: expected fewer than 2^31 rows a layer", c->what,
            r->n_experts, m->experts.ffn, m->hidden);
}

/* Checks of combinations of keys that are valid individually. */
static void check_sizes(const struct model_config *m, const struct config *c)
{
    if (c->e->code != ERR_NONE)
        return;
    if (m->n_heads % m->n_kv_heads != 0)
        ERR(c->e, ERR_INPUT, "%s: \"num_key_value_heads\" is %d, expected a divisor of the %d attention heads", c->what,
            m->n_kv_heads, m->n_heads);
    if (m->head_dim < 1 || m->head_dim > CONFIG_MAX_HEAD_DIM)
        ERR(c->e, ERR_INPUT, "%s: a head has %d dimensions (hidden size %d / %d heads), expected [1, %d]", c->what,
            m->head_dim, m->hidden, m->n_heads, CONFIG_MAX_HEAD_DIM);
    if (m->ffn < 1 || m->ffn > CONFIG_MAX_FFN)
        ERR(c->e, ERR_INPUT, "%s: the MLP is %d wide, expected [1, %d]", c->what, m->ffn, CONFIG_MAX_FFN);
    check_experts(m, c);
}

int model_context(const struct model_config *m)
{
    int longest = m->scaled_positions > m->max_positions ? m->scaled_positions : m->max_positions;
    return longest > 0 ? longest : INT_MAX;
}

/* The language model's part of the config, "text_config", with "dtype" and "tie_word_embeddings" of the outer config if
 * they are missing, and a tied head if either says so; flat: without it the whole. The caller frees json. */
static int open_text_config(struct config *text, const struct config *c, bool flat, char *what, size_t what_bytes)
{
    static const char *const shared[] = {"dtype", "torch_dtype", "tie_word_embeddings"};
    const json_t *part = json_object_get(c->json, "text_config");
    flat = flat && part == NULL;
    (void)snprintf(what, what_bytes, flat ? "%s" : "%s: \"text_config\"", c->what);
    part = flat ? c->json : part;
    if (!json_is_object(part))
        return ERR(c->e, ERR_INPUT, "%s is %s, expected an object", what, json_type_name(part));
    json_t *json = json_copy((json_t *)part);
    for (size_t i = 0; json != NULL && i < sizeof shared / sizeof shared[0]; i++)
        if (json_object_get(json, shared[i]) == NULL)
            (void)json_object_set(json, shared[i], json_object_get(c->json, shared[i]));
    if (json == NULL)
        return ERR(c->e, ERR_MEMORY, "%s: out of host memory", what);
    if (json_is_true(json_object_get(c->json, "tie_word_embeddings")))
        (void)json_object_set_new(json, "tie_word_embeddings", json_true());
    *text = (struct config){json, what, c->e};
    return 0;
}

static void read_family(struct model_config *m, const struct config *c, const struct family *family)
{
    (void)snprintf(m->model_type, sizeof m->model_type, "%s", family->model_type);
    config_dtype(m, c);
    family->config(m, c);
    check_sizes(m, c);
}

static void read_wrapped(struct model_config *m, const struct config *c, const struct family *family)
{
    char what[300];
    struct config text;
    if (open_text_config(&text, c, family->wrapped == WRAPPED_OR_FLAT, what, sizeof what) != 0)
        return;
    if (m->quantization.format == FORMAT_NONE)
        quantization_read(&m->quantization, &text);
    if (c->e->code == ERR_NONE)
        read_family(m, &text, family);
    json_decref((json_t *)text.json);
}

int model_config_parse(struct model_config *m, const char *text, size_t bytes, const char *what, struct err *e)
{
    memset(m, 0, sizeof *m);
    json_t *json = json_parse_model(text, bytes, what, e);
    if (json == NULL)
        return -1;
    const struct config c = {json, what, e};
    if (!json_is_object(json))
        ERR(e, ERR_INPUT, "%s: is %s, expected an object", what, json_type_name(json));
    else
        quantization_read(&m->quantization, &c);
    const struct family *family = e->code == ERR_NONE ? find_family(&c) : NULL;
    if (family != NULL && family->wrapped != NOT_WRAPPED)
        read_wrapped(m, &c, family);
    else if (family != NULL)
        read_family(m, &c, family);
    json_decref(json);
    return e->code == ERR_NONE ? 0 : -1;
}

int model_config_read(struct model_config *m, const char *model_dir, struct err *e)
{
    char path[PATH_MAX];
    size_t bytes = 0;
    struct stat info;
    memset(m, 0, sizeof *m);
    if (stat(model_dir, &info) == 0 && !S_ISDIR(info.st_mode))
        return ERR(e, ERR_INPUT, "%s: is a file, expected the folder that holds config.json and model.safetensors",
                   checkpoint_short_path(model_dir));
    if ((size_t)snprintf(path, sizeof path, "%s/config.json", model_dir) >= sizeof path)
        return ERR(e, ERR_INPUT, "%s: the path is too long", checkpoint_short_path(model_dir));
    if (stat(path, &info) != 0) {
        if (checkpoint_refuse_formats(model_dir, e) != 0)
            return -1;
    } else if (!S_ISREG(info.st_mode)) {
        return ERR(e, ERR_INPUT, "%s: not a regular file", checkpoint_short_path(path));
    }
    char *text = file_read_text(path, CONFIG_MAX_BYTES, &bytes, e);
    if (text == NULL)
        return -1;
    int rc = model_config_parse(m, text, bytes, checkpoint_short_path(path), e);
    free(text);
    return rc == 0 ? quantization_read_beside(&m->quantization, model_dir, e) : rc;
}

float model_alibi_slope(int head, int n_heads)
{
    int closest = 1;
    while (closest <= n_heads / 2)
        closest *= 2;
    bool extra = head >= closest;
    float base = (float)exp2(-(extra ? 4.0 : 8.0) / closest);
    int exponent = extra ? 2 * (head - closest) + 1 : head + 1;
    return powf(base, (float)exponent);
}

float model_embed_scale(const struct model_config *m, enum dtype type)
{
    return m->embed_scale_rounded ? dtype_round(type, m->embed_scale) : m->embed_scale;
}

float model_attention_scale(const struct model_config *m, int layer)
{
    return m->scale_by_inverse_layer ? m->attention_scale / (float)(layer + 1) : m->attention_scale;
}

const struct rope *model_rope(const struct model_config *m, int layer)
{
    if (m->position == POSITION_ROPE && m->layer[layer].unrotated && m->unrotated_rope.query_growth > 0)
        return &m->unrotated_rope;
    if (m->position != POSITION_ROPE || m->layer[layer].unrotated)
        return NULL;
    return m->layer[layer].window > 0 && m->window_rope.dims > 0 ? &m->window_rope : &m->rope;
}

int model_value_dim(const struct model_config *m)
{
    return m->latent.rank > 0 ? m->latent.value : m->head_dim;
}

int model_window(const struct model_config *m, int len, int *n)
{
    int window = 0;
    *n = 0;
    for (int i = 0; i < m->n_layers; i++) {
        int reach = model_layer_reach(m, i);
        if (reach == 0 || reach >= len)
            continue;
        window = reach > window ? reach : window;
        ++*n;
    }
    return window;
}

int model_cache_arrays(const struct model_config *m)
{
    return m->latent.rank > 0 ? 1 : 2;
}

const char *model_variant(const struct model_config *m)
{
    static const char *const names[8] = {NULL,       "kv-fp8",          "weights-fp8",      "weights-fp8-kv-fp8",
                                         "head-fp8", "head-fp8-kv-fp8", "weights-head-fp8", "weights-head-kv-fp8"};
    static const char *const inputs[4] = {"w8a8", "w8a8-kv-fp8", "head-fp8-w8a8", "head-fp8-w8a8-kv-fp8"};
    if (m->quantised_inputs)
        return inputs[m->kv_fp8 + 2 * m->head_fp8];
    return names[m->kv_fp8 + 2 * m->weights_fp8 + 4 * m->head_fp8];
}

int model_hold_whole_experts(struct model_config *m, struct err *e)
{
    if (m->experts.routing.n_experts == 0)
        return ERR(e, ERR_USAGE, "--expert-parallel: the model (%s) has no experts, expected a mixture of them",
                   m->model_type);
    m->whole_experts = true;
    return 0;
}

int model_layer_sums(const struct model_config *m)
{
    return (m->parallel_residual ? 1 : 2) + (m->qk_norm_row ? 1 : 0);
}
