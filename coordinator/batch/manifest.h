/* coordinator/batch/manifest.h - OUTPUT.manifest.json beside the output: what made it and how far it is. Replaced as a
 * whole.
 *
 * What decides over the text of results ("identity": model, format, seed, defaults, chat template) must be the same
 * when a run goes on with an output; the rest is for people. */
#ifndef BATCH_MANIFEST_H
#define BATCH_MANIFEST_H

#include "base/json.h"

#define MANIFEST_ENDING ".manifest.json" /* behind the output's name */

struct manifest {
    char *path;
    json_t *previous; /* of an earlier run; NULL: there was none */
    json_t *identity; /* of this run; owned */
};

/* Read what an earlier run has left. identity: taken over. */
int manifest_open(struct manifest *m, const char *output, json_t *identity, struct err *e);
void manifest_close(struct manifest *m);

/* Is the output of the same making? If not, *e names the first difference. */
int manifest_check(const struct manifest *m, const char *output, struct err *e);

/* The same for a part: are these two equal? prefix: its name before those of its members, "model."; NULL: nothing. */
int manifest_compare(const char *output, const char *prefix, const json_t *was, const json_t *is, struct err *e);

/* A number of the earlier runs, 0 where there is none: manifest_number(m, "tokens", "prompt"). */
int64_t manifest_number(const struct manifest *m, const char *part, const char *key);
double manifest_real(const struct manifest *m, const char *key);

/* Bytes of the output that are known to be on disk. */
int64_t manifest_synced(const struct manifest *m);

/* The part of the output that was on disk, for journal_check; borrowed. NULL: unknown. */
const json_t *manifest_output(const struct manifest *m);

/* The output of the earlier run is about to be replaced: its manifest says no more what is in it, on disk when this
 * returns. */
int manifest_forget_output(struct manifest *m, struct err *e);

/* Write it: the identity and `rest` (taken over; NULL: out of memory), on disk when this returns. */
int manifest_write(struct manifest *m, json_t *rest, struct err *e);

#endif
