/* partition/rope.h - turns the rope keys of config.json, of transformers 4 and 5, into struct rope. Only for
 * partition/. */
#ifndef PARTITION_ROPE_H
#define PARTITION_ROPE_H

#include "partition/config.h"

/* A family's meaning of the names of scalings. */
enum rope_names {
    ROPE_NAMES,           /* what transformers means */
    ROPE_YARN_IS_LONG,    /* "yarn" is LongRoPE (Phi-3) */
    ROPE_MROPE_IS_PLAIN,  /* "mrope" is the default (Qwen2-VL) */
    ROPE_DYNAMIC_BY_ALPHA /* "dynamic" with a key "alpha" multiplies theta once and for all (Hunyuan) */
};

/* How a family spells the two parameters that are not part of the scaling, and their defaults. */
struct rope_keys {
    const char *theta;
    double theta_missing;
    const char *fraction; /* of head_dim that rotates; NULL: heads rotate as a whole, another fraction is refused */
    double fraction_missing;
    enum rope_names names;
};

/* The key of the dictionary: transformers gives "rope_scaling" precedence, unless it is empty. A failure goes to
 * c->e. */
const char *rope_key(const struct config *c);

/* Does either dictionary say something? An empty "rope_scaling" counts as none, an empty "rope_parameters" as given. */
bool rope_is_there(const struct config *c);

/* Fill m->rope, half-split, from `rope_parameters` (v5) or `rope_scaling` and the family's keys (v4). Needs
 * m->head_dim and m->max_positions. Failures go to c->e. */
void rope_read(struct model_config *m, const struct config *c, const struct rope_keys *keys);

/* The same for models whose windowed layers have another rotation: `rope_parameters` has a dictionary for each kind of
 * layer (v5); in v4, `rope_scaling` and the keys belong to layers without a window, and window_keys has theta for the
 * windowed ones. */
void rope_read_kinds(struct model_config *m, const struct config *c, const struct rope_keys *keys,
                     const struct rope_keys *window_keys);

/* The factor of the scale of DeepSeek's attention: the square of YaRN's factor for all dimensions. 1 without scaling,
 * or without mscale_all_dim. */
double rope_score_factor(const struct config *c);

/* Unscaled frequencies: 1 / theta^(2j/dims). */
void rope_plain(struct rope *rope, enum rope_layout layout, int dims, double theta);

#endif
