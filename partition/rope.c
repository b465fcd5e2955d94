/* partition/rope.c - see rope.h. The formulas are those of transformers' modeling_rope_utils.py (4.57), in float where
 * it computes in float32 tensors and in double where it computes in Python numbers. */
#include "partition/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TWO_PI     6.283185307179586
#define MAX_FACTOR 1e6

/* The keys that all scalings share. `p` is the dictionary rope_parameters or rope_scaling, whose json may be NULL. */
struct scaling {
    struct config p;
    const struct config *top;
    double theta;
    int max_positions;
    enum rope_names names;
};

/* The context before the extension. As in transformers, the key counts first beside the dictionary, as Phi-3 has it. */
static int original_positions(const struct scaling *s, int missing)
{
    const char *key = "original_max_position_embeddings";
    return config_int(s->top, key, config_int(&s->p, key, missing, 1, CONFIG_MAX_POSITIONS), 1, CONFIG_MAX_POSITIONS);
}

static float power(double theta, int j, int dims)
{
    return powf((float)theta, (float)(2 * j) / (float)dims);
}

void rope_plain(struct rope *rope, enum rope_layout layout, int dims, double theta)
{
    rope->layout = layout;
    rope->growth = ROPE_FIXED;
    rope->dims = dims;
    rope->attention_scaling = 1.0f;
    for (int j = 0; j < dims / 2; j++)
        rope->inv_freq[j] = 1.0f / power(theta, j, dims);
}

static void scale_default(struct rope *rope, const struct scaling *s)
{
    (void)rope;
    (void)s;
}

static void scale_linear(struct rope *rope, const struct scaling *s)
{
    float factor = (float)config_need_real(&s->p, "factor", 1, MAX_FACTOR);
    for (int j = 0; j < rope->dims / 2; j++)
        rope->inv_freq[j] /= factor;
}

/* The base grows with the sequence, so the layer code computes it, or has grown by alpha. */
static void scale_dynamic(struct rope *rope, const struct scaling *s)
{
    double alpha = s->names == ROPE_DYNAMIC_BY_ALPHA ? config_real(&s->p, "alpha", 0, 0, 1e9) : 0;
    if (alpha > 0 && rope->dims > 2) {
        rope_plain(rope, ROPE_HALF, rope->dims, s->theta * pow(alpha, rope->dims / (rope->dims - 2.0)));
        return;
    }
    rope->growth = ROPE_DYNAMIC;
    rope->long_from = s->max_positions;
    rope->theta = (float)s->theta;
    rope->factor = (float)config_need_real(&s->p, "factor", 1, MAX_FACTOR);
    if (rope->dims < 4)
        ERR(s->p.e, ERR_INPUT, "%s: \"dynamic\" needs at least 4 rotated dimensions, the config has %d", s->p.what,
            rope->dims);
}

static void scale_llama3(struct rope *rope, const struct scaling *s)
{
    float factor = (float)config_need_real(&s->p, "factor", 1, MAX_FACTOR);
    double low = config_need_real(&s->p, "low_freq_factor", 1e-6, MAX_FACTOR);
    double high = config_need_real(&s->p, "high_freq_factor", 1e-6, MAX_FACTOR);
    int original = original_positions(s, 0);
    if (original == 0)
        ERR(s->p.e, ERR_INPUT, "%s: \"original_max_position_embeddings\" is missing, expected an integer in [1, %d]",
            s->p.what, CONFIG_MAX_POSITIONS);
    if (high < low)
        ERR(s->p.e, ERR_INPUT, "%s: \"high_freq_factor\" is %g, expected at least \"low_freq_factor\" (%g)", s->p.what,
            high, low);
    if (s->p.e->code != ERR_NONE)
        return;
    float longest = (float)(original / low), shortest = (float)(original / high);
    for (int j = 0; j < rope->dims / 2; j++) {
        float inv = rope->inv_freq[j], wave = (float)TWO_PI / inv;
        float smooth = ((float)original / wave - (float)low) / (float)(high - low);
        if (wave > longest)
            rope->inv_freq[j] = inv / factor;
        else if (wave >= shortest && high > low) /* equal (Llama 4): no frequency lies between */
            rope->inv_freq[j] = (1.0f - smooth) * inv / factor + smooth * inv;
    }
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

/* The dimension that turns `rotations` times over the original context. */
static double yarn_dimension(double rotations, int dims, double theta, int original)
{
    return dims * log(original / (rotations * TWO_PI)) / (2 * log(theta));
}

/* 0 counts as absent, as it does in Python's `x or default`. */
static double real_or(const struct config *p, const char *key, double otherwise)
{
    double x = config_real(p, key, otherwise, 0, MAX_FACTOR);
    return x > 0 ? x : otherwise;
}

/* YaRN (Peng et al. 2023, section 3.2 and 3.4). */
static void scale_yarn(struct rope *rope, const struct scaling *s)
{
    const struct config *p = &s->p;
    int dims = rope->dims;
    double factor = config_need_real(p, "factor", 1, MAX_FACTOR);
    int original = original_positions(s, s->max_positions);
    double mscale = config_real(p, "mscale", 0, 0, MAX_FACTOR);
    double mscale_all = config_real(p, "mscale_all_dim", 0, 0, MAX_FACTOR);
    double attention = mscale > 0 && mscale_all > 0 ? yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
                                                    : yarn_scale(factor, 1);
    rope->attention_scaling = (float)config_real(p, "attention_factor", attention, 1e-6, MAX_FACTOR);

    double low = yarn_dimension(real_or(p, "beta_fast", 32), dims, s->theta, original);
    double high = yarn_dimension(real_or(p, "beta_slow", 1), dims, s->theta, original);
    if (config_bool(p, "truncate", !config_is_null(p, "truncate"))) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, dims - 1);
    if (low == high)
        high += 0.001;
    for (int j = 0; j < dims / 2; j++) {
        float ramp = ((float)j - (float)low) / (float)(high - low);
        float keep = 1.0f - fminf(fmaxf(ramp, 0.0f), 1.0f); /* 1: as trained, 0: interpolated */
        float freq = power(s->theta, j, dims);
        rope->inv_freq[j] = 1.0f / ((float)factor * freq) * (1.0f - keep) + 1.0f / freq * keep;
    }
}

static void read_factors(const struct scaling *s, const char *key, float *inv_freq, int dims)
{
    const json_t *list = json_object_get(s->p.json, key);
    if (!json_is_array(list) || json_array_size(list) != (size_t)(dims / 2)) {
        ERR(s->p.e, ERR_INPUT, "%s: \"%s\" is %s of %zu, expected an array of %d numbers", s->p.what, key,
            json_type_name(list), json_array_size(list), dims / 2);
        return;
    }
    for (int j = 0; j < dims / 2; j++) {
        const json_t *item = json_array_get(list, (size_t)j);
        double x = json_number_value(item);
        if (!(x >= 1e-6 && x <= 1e9)) {
            ERR(s->p.e, ERR_INPUT, "%s: \"%s\"[%d] is %s (%g), expected a number in [1e-06, 1e+09]", s->p.what, key, j,
                json_type_name(item), x);
            return;
        }
        inv_freq[j] = 1.0f / ((float)x * power(s->theta, j, dims));
    }
}

/* LongRoPE: one table up to the original context, another beyond it. */
static void scale_longrope(struct rope *rope, const struct scaling *s)
{
    int original = original_positions(s, s->max_positions);
    double factor = config_real(&s->p, "factor", (double)s->max_positions / original, 1, MAX_FACTOR);
    double attention = factor > 1 && original > 1 ? sqrt(1 + log(factor) / log(original)) : 1;
    rope->attention_scaling = (float)config_real(&s->p, "attention_factor", attention, 1e-6, MAX_FACTOR);
    rope->growth = ROPE_LONG;
    rope->long_from = original;
    read_factors(s, "short_factor", rope->inv_freq, rope->dims);
    read_factors(s, "long_factor", rope->inv_freq_long, rope->dims);
}

/* NULL, with the failure in c->e, if the dictionary names an unknown scaling. */
static void (*find_scaling(const struct config *p, const struct rope_keys *keys))(struct rope *, const struct scaling *)
{
    static const struct {
        const char *name;
        void (*scale)(struct rope *, const struct scaling *);
    } table[] = {{"default", scale_default}, {"linear", scale_linear}, {"dynamic", scale_dynamic},
                 {"llama3", scale_llama3},   {"yarn", scale_yarn},     {"longrope", scale_longrope},
                 {"su", scale_longrope}};
    if (p->json == NULL)
        return scale_default;
    const char *type = json_get_string(p->json, "rope_type", NULL, p->what, p->e);
    if (type == NULL)
        type = json_get_string(p->json, "type", "default", p->what, p->e);
    if (keys->names == ROPE_YARN_IS_LONG && strcmp(type, "yarn") == 0)
        type = "longrope";
    if (keys->names == ROPE_MROPE_IS_PLAIN && strcmp(type, "mrope") == 0)
        type = "default";
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (strcmp(type, table[i].name) == 0)
            return table[i].scale;
    ERR(p->e, ERR_UNSUPPORTED,
        "%s: \"rope_type\" is \"%.60s\", expected default, linear, dynamic, llama3, yarn or longrope", p->what, type);
    return NULL;
}

/* The dictionary under `key`, and inside of it under `kind` unless that is NULL; json is NULL where there is none. */
static int open_dictionary(struct config *p, const struct config *c, const char *key, const char *kind, char *what,
                           size_t what_bytes)
{
    const json_t *json = config_has(c, key) ? json_object_get(c->json, key) : NULL;
    (void)snprintf(what, what_bytes, "%s: \"%s\"", c->what, key);
    if (json != NULL && !json_is_object(json))
        return ERR(c->e, ERR_INPUT, "%s is %s, expected an object or null", what, json_type_name(json));
    if (kind != NULL && json != NULL) {
        json = json_object_get(json, kind);
        (void)snprintf(what, what_bytes, "%s: \"%s\": \"%s\"", c->what, key, kind);
        if (json != NULL && !json_is_object(json))
            return ERR(c->e, ERR_INPUT, "%s is %s, expected an object", what, json_type_name(json));
    }
    *p = (struct config){json, what, c->e};
    return 0;
}

const char *rope_key(const struct config *c)
{
    const json_t *old = json_object_get(c->json, "rope_scaling"), *now = json_object_get(c->json, "rope_parameters");
    bool replaced = json_object_size(old) > 0;
    if (replaced && json_object_get(now, "rope_theta") != NULL && json_object_get(old, "rope_theta") == NULL &&
        !config_has(c, "rope_theta"))
        ERR(c->e, ERR_UNSUPPORTED,
            "%s: \"rope_scaling\" takes the place of \"rope_parameters\", whose \"rope_theta\" would be lost: expected "
            "one of the two, with \"rope_theta\"",
            c->what);
    return !replaced && config_has(c, "rope_parameters") ? "rope_parameters" : "rope_scaling";
}

bool rope_is_there(const struct config *c)
{
    const json_t *old = json_object_get(c->json, "rope_scaling");
    return config_has(c, "rope_parameters") || (config_has(c, "rope_scaling") && !json_is_object(old)) ||
           json_object_size(old) > 0;
}

static bool has_kinds(const struct config *c)
{
    const json_t *json = json_object_get(c->json, "rope_parameters");
    return json_is_object(json_object_get(json, "full_attention")) ||
           json_is_object(json_object_get(json, "sliding_attention"));
}

/* The scalings whose factor extends the original positions; with llama3 and LongRoPE max_position_embeddings is already
 * the extended number. */
static int scaled_positions(const struct scaling *s, void (*scale)(struct rope *, const struct scaling *))
{
    if (scale != scale_linear && scale != scale_dynamic && scale != scale_yarn)
        return 0;
    int original = scale == scale_yarn ? original_positions(s, s->max_positions) : s->max_positions;
    double longest = original * config_real(&s->p, "factor", 1, 1, MAX_FACTOR);
    return longest < CONFIG_MAX_POSITIONS ? (int)longest : CONFIG_MAX_POSITIONS;
}

/* The part of a head that rotates. The classes of most families ignore the key, or fail. */
static double read_fraction(const struct config *c, const struct config *p, const struct rope_keys *keys)
{
    static const char *const key = "partial_rotary_factor";
    double fraction = config_real(c, keys->fraction != NULL ? keys->fraction : key, keys->fraction_missing, 0, 1);
    fraction = config_real(p, key, fraction, 0, 1);
    if (keys->fraction == NULL && fraction < 1)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"%s\" is %g, expected 1: heads of this family rotate as a whole", c->what, key,
            fraction);
    return fraction;
}

/* Reads one rotation, half-split, from its dictionary and the keys; *scaled: the extended number of positions, or 0. */
static void read_rotation(struct rope *to, int *scaled, const struct model_config *m, const struct config *c,
                          const struct config *p, const struct rope_keys *keys)
{
    struct scaling s = {.p = *p, .top = c, .max_positions = m->max_positions, .names = keys->names};
    double theta = config_real(c, keys->theta, keys->theta_missing, 2, 1e15);
    s.theta = config_real(p, "rope_theta", theta, 2, 1e15);
    int dims = (int)(m->head_dim * read_fraction(c, p, keys));
    if (dims < 2 || dims % 2 != 0 || dims > 2 * ROPE_MAX_PAIRS) {
        ERR(c->e, ERR_INPUT, "%s: %d of the %d dimensions of a head are rotated, expected an even number in [2, %d]",
            c->what, dims, m->head_dim, 2 * ROPE_MAX_PAIRS);
        return;
    }
    rope_plain(to, ROPE_HALF, dims, s.theta);
    void (*scale)(struct rope *, const struct scaling *) = find_scaling(p, keys);
    if (scale == NULL || c->e->code != ERR_NONE)
        return;
    scale(to, &s);
    *scaled = scaled_positions(&s, scale);
}

void rope_read(struct model_config *m, const struct config *c, const struct rope_keys *keys)
{
    char what[300];
    struct config p;
    if (open_dictionary(&p, c, rope_key(c), NULL, what, sizeof what) != 0)
        return;
    if (has_kinds(c)) {
        ERR(c->e, ERR_UNSUPPORTED, "%s differs between layer types, which is not implemented", what);
        return;
    }
    read_rotation(&m->rope, &m->scaled_positions, m, c, &p, keys);
}

void rope_read_kinds(struct model_config *m, const struct config *c, const struct rope_keys *keys,
                     const struct rope_keys *window_keys)
{
    char what[300], window_what[300];
    struct config p, window = {NULL, c->what, c->e};
    bool kinds = config_has(c, "rope_parameters");
    int window_scaled = 0;
    if (kinds && json_object_size(json_object_get(c->json, "rope_scaling")) > 0)
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"rope_scaling\" stands beside \"rope_parameters\", expected one of the two",
            c->what);
    if (open_dictionary(&p, c, kinds ? "rope_parameters" : "rope_scaling", kinds ? "full_attention" : NULL, what,
                        sizeof what) != 0 ||
        (kinds &&
         open_dictionary(&window, c, "rope_parameters", "sliding_attention", window_what, sizeof window_what) != 0))
        return;
    if (kinds && !has_kinds(c)) {
        ERR(c->e, ERR_UNSUPPORTED, "%s: \"rope_parameters\" has neither \"full_attention\" nor \"sliding_attention\"",
            c->what);
        return;
    }
    read_rotation(&m->rope, &m->scaled_positions, m, c, &p, keys);
    read_rotation(&m->window_rope, &window_scaled, m, c, &window, window_keys);
}

double rope_score_factor(const struct config *c)
{
    char what[300];
    struct config p;
    if (open_dictionary(&p, c, rope_key(c), NULL, what, sizeof what) != 0 || p.json == NULL)
        return 1;
    double all = config_real(&p, "mscale_all_dim", 0, 0, MAX_FACTOR);
    bool scaled =
        strcmp(json_get_string(p.json, config_has(&p, "rope_type") ? "rope_type" : "type", "default", p.what, p.e),
               "default") != 0;
    double factor = scaled && all > 0 ? yarn_scale(config_need_real(&p, "factor", 1, MAX_FACTOR), all) : 1;
    return factor * factor;
}
