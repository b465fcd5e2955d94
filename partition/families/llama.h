/* partition/families/llama.h - what Llama's many kin share: the keys of their configs and the names of their tensors. */
#ifndef PARTITION_FAMILIES_LLAMA_H
#define PARTITION_FAMILIES_LLAMA_H

#include "partition/families.h"
#include "partition/rope.h"

/* Fill in what all kin read alike: sizes, RMS norms, gated SiLU MLP, half-split rope, grouped KV heads. Biases, windows,
 * norms of q and k, and experts are each family's own. `missing` holds the class defaults; those that are 0 there mean:
 * n_kv_heads as many as heads, head_dim hidden / n_heads, norm_eps 1e-6. */
void llama_read(struct model_config *m, const struct config *c, const struct model_config *missing,
                const struct rope_keys *rope);

/* "rope_theta", 10000 where it is missing, all of a head. */
extern const struct rope_keys llama_rope;

/* The layers that "layer_types" calls sliding have the "sliding_window"; without the key those from `first` on have
 * `window`. */
void llama_read_windows(struct model_config *m, const struct config *c, int window, int first);

/* m->experts.routing: `n_chosen` of `n` experts, by class default; `least`: how few may be. */
void llama_read_routing(struct model_config *m, const struct config *c, int n, int least, int n_chosen,
                        bool normalised);

/* The window of Qwen's families: 0 unless "use_sliding_window". */
int qwen_window(const struct config *c);

/* The sources of all kin: roles that a config has not are skipped. And the rest of struct family. */
extern const struct weight_source llama_source[];
extern const char *const llama_outside[], *const llama_ignored[];

#endif
