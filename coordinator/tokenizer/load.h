/* coordinator/tokenizer/load.h - reading tokenizer files: typed members with messages, and the order of the parts. */
#ifndef TOKENIZER_LOAD_H
#define TOKENIZER_LOAD_H

#include "base/err.h"
#include "coordinator/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOAD_MAX_BYTES   ((size_t)1 << 28) /* of one tokenizer file */
#define LOAD_MAX_IDS     (1 << 24)         /* ids are below this */
#define LOAD_MAX_MEMBERS 64                /* parts of a Sequence, all levels together */

/* jansson refuses U+0000 in keys, and tokens may contain it: it is read as this noncharacter and turned back. */
#define LOAD_NUL_STAND_IN "\xf4\x8f\xbf\xbf" /* U+10FFFF */

struct load {
    const char *file; /* named in every message */
    bool has_nul;     /* LOAD_NUL_STAND_IN means U+0000 */
    struct err *e;
};

/* A string as malloc'ed bytes; NULL and l->e on failure. `what` names it in messages. */
char *load_string(const struct load *l, const json_t *value, const char *what, size_t *bytes);
/* The same as a required member of an object. */
char *load_member(const struct load *l, const json_t *object, const char *key, const char *what, size_t *bytes);
/* n bytes at `text`, stand-ins turned back in place; the new length. */
size_t load_restore(const struct load *l, char *text, size_t n);
/* Required boolean member; `missing` < 0 means that it must be there. */
bool load_bool(const struct load *l, const json_t *object, const char *key, int missing, const char *what);
/* The "type" of a part, "" if it has none and NULL (with l->e set) if it is not a string. */
const char *load_type(const struct load *l, const json_t *part, const char *what);
/* The member of `part` that a Sequence lists its parts in, or NULL with l->e set. */
const json_t *load_sequence(const struct load *l, const json_t *part, const char *key, const char *what);

/* Fill *t (zeroed) from the text of a tokenizer.json, or from model_dir. */
int load_text(struct tokenizer *t, const char *json, size_t bytes, const char *file, struct err *e);
int load_folder(struct tokenizer *t, const char *model_dir, struct err *e);

#endif
