/* coordinator/batch/manifest.h - OUTPUT.manifest.json beside the output: its origin and progress. Replaced as a whole.
 * The settings that determine the results' text ("identity": model, format, seed, defaults, chat template) must be
 * equal when a run continues an output; the rest is for people. */
#ifndef BATCH_MANIFEST_H
#define BATCH_MANIFEST_H

#include "base/json.h"

#define MANIFEST_ENDING ".manifest.json" /* appended to the output's name */

struct manifest {
    char *path;
    json_t *previous; /* of an earlier run; NULL: there was none */
    json_t *identity; /* of this run; owned */
};

/* Read the manifest of an earlier run. identity: taken over. */
int manifest_open(struct manifest *m, const char *output, json_t *identity, struct err *e);
void manifest_close(struct manifest *m);

/* Was the output made with the same identity? If not, *e names the first difference. */
int manifest_check(const struct manifest *m, const char *output, struct err *e);

/* The same for a part: are these two equal? prefix: precedes the names of members, "model."; NULL: none. */
int manifest_compare(const char *output, const char *prefix, const json_t *was, const json_t *is, struct err *e);

/* A number of the earlier runs, or 0: manifest_number(m, "tokens", "prompt"). */
int64_t manifest_number(const struct manifest *m, const char *part, const char *key);
double manifest_real(const struct manifest *m, const char *key);

/* The number of bytes of the output known to be on disk. */
int64_t manifest_synced(const struct manifest *m);

/* The part of the output that was on disk, for journal_check; borrowed. NULL: unknown. */
const json_t *manifest_output(const struct manifest *m);

/* To be called before the output of the earlier run is replaced: the manifest no longer describes its contents. Synced
 * when this returns. */
int manifest_forget_output(struct manifest *m, struct err *e);

/* Write the identity and `rest` (taken over; NULL: out of memory). Synced when this returns. */
int manifest_write(struct manifest *m, json_t *rest, struct err *e);

#endif
