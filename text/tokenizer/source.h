/* text/tokenizer/source.h - reads tokenizer files: typed members with error messages, and the order of the parts. */
#ifndef TOKENIZER_SOURCE_H
#define TOKENIZER_SOURCE_H

#include "base/err.h"
#include "text/tokenizer/tokenizer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_MAX_BYTES   ((size_t)1 << 28) /* of one tokenizer file */
#define SOURCE_MAX_IDS     (1 << 24)         /* ids are below this */
#define SOURCE_MAX_MEMBERS 64                /* parts of a Sequence, all levels together */

/* jansson refuses U+0000 in keys, but tokens may contain it: it is replaced by this noncharacter for reading and then
 * restored. */
#define SOURCE_NUL_STAND_IN "\xf4\x8f\xbf\xbf" /* U+10FFFF */

struct source {
    const char *file; /* named in every message */
    bool has_nul;     /* SOURCE_NUL_STAND_IN means U+0000 */
    struct err *e;
};

/* A string as malloc'ed bytes; NULL and l->e on failure. `what` names it in messages. */
char *source_string(const struct source *l, const json_t *value, const char *what, size_t *bytes);
/* The same as a required member of an object. */
char *source_member(const struct source *l, const json_t *object, const char *key, const char *what, size_t *bytes);
/* Restores stand-ins in n bytes at `text`, in place; returns the new length. */
size_t source_restore(const struct source *l, char *text, size_t n);
/* Required boolean member; `missing` < 0 means that it must be there. */
bool source_bool(const struct source *l, const json_t *object, const char *key, int missing, const char *what);
/* The "type" of a part, "" if it has none and NULL (with l->e set) if it is not a string. */
const char *source_type(const struct source *l, const json_t *part, const char *what);
/* The member of `part` in which a Sequence lists its parts, or NULL with l->e set. */
const json_t *source_sequence(const struct source *l, const json_t *part, const char *key, const char *what);

/* Fill *t (zeroed) from the text of a tokenizer.json, or from model_dir. */
int source_load_text(struct tokenizer *t, const char *json, size_t bytes, const char *file, struct err *e);
int source_load_folder(struct tokenizer *t, const char *model_dir, struct err *e);

#endif
