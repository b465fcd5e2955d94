/* commands/models/opened_model.h - an opened model of the folder: its headers and texts, and the parameters of its
 * load. */
#ifndef MODELS_OPENED_MODEL_H
#define MODELS_OPENED_MODEL_H

#include "commands/models/shelf.h"
#include "commands/models/wishes.h"
#include "commands/start/start.h"
#include "coordinator/archives/cache.h"
#include "coordinator/schedule/units.h"
#include "coordinator/tasks/service_options.h"

#include <limits.h>

struct opened_model {
    struct shelved *lasting;       /* tokenizer, template; owned */
    struct archive_cache *cache;   /* borrowed; holds its files, if they are from an archive */
    struct archive_folder *folder; /* its entry there, kept until the model is closed; NULL: it is a folder of
                                      --models-dir */
    double unpacking;              /* s */
    char dir[PATH_MAX];            /* the folder of these files */
    struct model_config config;
    struct checkpoint checkpoint; /* until it is fetched */
    struct instance_setup setup;
    struct kv_share share[KV_KINDS]; /* of the memory for keys and values */
    struct wishes wishes;            /* of its folder */
};

/* The model's name and place. Borrowed. */
struct model_place {
    const struct service_options *service;
    const char *models_dir, *name, *archive; /* archive: its file in models_dir; NULL: it is a folder, */
    const char *below;                       /* at this place in models_dir; NULL: its folder has its name */
    const char *dir;                         /* its folder, if known: only its steps run here; else NULL */
    struct archive_cache *cache;             /* for archives */
    struct shelf *shelf;
    const struct ops *ops; /* of the ranks' devices */
    int n_ranks;
    size_t kv_bytes; /* of a rank, which models share */
};

/* Opens a model; the shelf provides the parts that do not change, if it has them. *bytes: its bytes on the rank that
 * holds most, without keys and values. Any thread, one at a time. */
struct opened_model *opened_model_open(const struct model_place *p, int64_t *bytes, struct err *e);
/* Its share of the units of KV memory, for the scheduler. */
void opened_model_units(const struct opened_model *m, struct unit_share share[KV_KINDS]);
/* Tokenizer and template go to the shelf. */
void opened_model_close(struct opened_model *m, struct shelf *shelf);

#endif
