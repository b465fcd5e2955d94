/* coordinator/models/models_options.c - see models_options.h. */
#include "coordinator/models/models_options.h"
#include "base/opt_rows.h"

#define AT(member) offsetof(struct models_options, member)

static const struct opt rows[] = {
    TEXT("models-dir", "DIR", dir,
         "instead of --model: all models whose folders are in DIR, each loaded when a request names it; see "
         "docs/models-serving.md"),
    {"model-memory", "BYTES", OPT_BYTES, AT(memory), 1 << 20, 1e18, -1, NULL,
     "with --models-dir: a rank's memory for all loaded models together: weights, keys and values, working memory; K, "
     "M, G, T are accepted (default: 80 % of the free memory at start)",
     NULL},
    TEXT("models-cache", "DIR", cache,
         "with --models-dir: unpack archives of models, NAME.tar.gz and NAME.tar, into folders in DIR, which all hosts "
         "see and one job uses"),
    {"models-cache-bytes", "BYTES", OPT_BYTES, AT(cache_bytes), 0, 1e18, -1, NULL,
     "with --models-cache: limit of all unpacked archives together; the least recently used ones are removed (default: "
     "90 % of the free space there at start)",
     NULL},
    INTEGER("max-models", max_loaded, 1, MODELS_MOST, -1,
            "with --models-dir: limit of models loaded at once, on each set of ranks (default 16)"),
    TEXT("replicas", "NAME=N,...", replicas,
         "with --models-dir and --tensor-parallel below the number of ranks: load this model on up to N sets of ranks "
         "when it is in use (default 1)"),
    {"host-cache", "BYTES", OPT_BYTES, AT(host_cache), 0, 1e18, 0, NULL,
     "with --models-dir: lock up to this much of unloaded models' files in each host's memory, so that they are loaded "
     "again at memory speed (default 0: the system's page cache decides)",
     NULL},
};

const struct opt_rows models_rows = OPT_ROWS(rows);

int models_options_most(const struct models_options *o)
{
    return o->max_loaded >= 0 ? (int)o->max_loaded : 16;
}

int models_options_check(const struct models_options *o, struct err *e)
{
    const char *given = o->dir != NULL        ? NULL
                        : o->memory >= 0      ? "model-memory"
                        : o->max_loaded >= 0  ? "max-models"
                        : o->replicas != NULL ? "replicas"
                        : o->host_cache > 0   ? "host-cache"
                        : o->cache != NULL    ? "models-cache"
                        : o->cache_bytes >= 0 ? "models-cache-bytes"
                                              : NULL;
    if (given != NULL)
        return ERR(e, ERR_USAGE, "--%s needs --models-dir DIR", given);
    if (o->cache_bytes >= 0 && o->cache == NULL)
        return ERR(e, ERR_USAGE, "--models-cache-bytes needs --models-cache DIR");
    return 0;
}
