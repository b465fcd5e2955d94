/* partition/config.h - helpers by which the families' config functions read config.json. Only for partition/.
 *
 * A failure is recorded in c->e (the first one wins) and the default is returned, so a family can read all its keys and
 * check c->e once. */
#ifndef PARTITION_CONFIG_H
#define PARTITION_CONFIG_H

#include "base/json.h"
#include "partition/model.h"

#define CONFIG_MAX_HIDDEN    (1 << 20)
#define CONFIG_MAX_HEADS     65536
#define CONFIG_MAX_VOCAB     (1 << 24)
#define CONFIG_MAX_FFN       (1 << 22)
#define CONFIG_MAX_HEAD_DIM  1024
#define CONFIG_MAX_POSITIONS (1 << 30)
#define CONFIG_MAX_EXPERTS   ROUTING_MAX_EXPERTS

/* One JSON object and its name in messages; all borrowed. */
struct config {
    const json_t *json;
    const char *what;
    struct err *e;
};

/* `keys` lists spellings, "n_embd|hidden_size": the first one that is present and not null counts. */
int config_int(const struct config *c, const char *keys, int missing, int low, int high);
double config_real(const struct config *c, const char *keys, double missing, double low, double high);
/* The same without a default: absence is refused. */
int config_need_int(const struct config *c, const char *keys, int low, int high);
double config_need_real(const struct config *c, const char *keys, double low, double high);

bool config_bool(const struct config *c, const char *key, bool missing);
/* Refuse a string under `key`, which may be missing, other than `expected`. */
void config_refuse_other(const struct config *c, const char *key, const char *expected);
enum activation config_activation(const struct config *c, const char *key, enum activation missing);

/* listed[i], i < n_layers: layer i is in the array under `key`, which may be missing or null. */
void config_list_layers(const struct config *c, const char *key, int n_layers, bool *listed);

/* The key is present but null, which is not always the same as absent. */
bool config_is_null(const struct config *c, const char *key);
/* The key is present and not null. */
bool config_has(const struct config *c, const char *key);

/* m->dtype: "dtype" or "torch_dtype", float32 where both are missing. */
void config_dtype(struct model_config *m, const struct config *c);

/* Sizes that every family has, under all their spellings; `missing` holds the class defaults of the family in
 * n_layers, hidden, n_heads and vocab. Sets embed_dim = hidden, n_kv_heads = n_heads and head_dim = hidden / n_heads
 * (0 when that is not whole: see config_divide_heads). */
void config_sizes(struct model_config *m, const struct config *c, const struct model_config *missing);

/* Refuse a hidden size that the heads do not divide: for families whose head_dim is no key of its own. */
void config_divide_heads(const struct model_config *m, const struct config *c);

#endif
