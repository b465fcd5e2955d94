/* commands/models/wishes.h - the files of other servers in a model's folder: serving.properties of DJLServing,
 * config.pbtxt of Triton. Supported keys are read, the others are named in one warning. All contents are untrusted
 * until checked. */
#ifndef MODELS_WISHES_H
#define MODELS_WISHES_H

#include "coordinator/models/warmup.h"

#include <stddef.h>
#include <stdint.h>

#define WISHES_MAX_BYTES ((size_t)64 << 10) /* of a file */
#define WISHES_WARMUPS   16

struct wishes {
    int64_t max_model_len, max_batch;     /* 0: not given */
    int64_t memory;                       /* minimum of bytes counted for it on a rank */
    struct warmup warmup[WISHES_WARMUPS]; /* [n_warmups] before it counts as loaded */
    int n_warmups;
    char unread[400]; /* unsupported ones, "KEY, KEY, ..."; truncated when full */
};

/* Reads the two files, if present. Refuses by name keys that would replace the folder's model: weights elsewhere,
 * Python code. name: the model's. */
int wishes_read(struct wishes *w, const char *dir, const char *name, int n_ranks, struct err *e);

/* The two formats. `what` names the text in messages; text is NUL-terminated; that of properties is changed. Exposed
 * for tests. */
int wishes_read_properties(struct wishes *w, char *text, const char *what, int n_ranks, struct err *e);
int wishes_read_pbtxt(struct wishes *w, const char *text, const char *what, const char *name, struct err *e);

/* Notes an unsupported key. */
void wishes_leave(struct wishes *w, const char *key);

#endif
