/* coordinator/batch/fingerprint.h - hashes that identify a model, to check that an output was begun with the same
 * one. */
#ifndef BATCH_FINGERPRINT_H
#define BATCH_FINGERPRINT_H

#include "base/json.h"
#include "partition/checkpoint.h"

/* {"config_sha256", "generation_config_sha256", "tokenizer_sha256", "weights_sha256"}; the caller decrefs. The hash of
 * the weights covers names, types, shapes and sizes of all tensors, and a few KiB from the middle of some of them, so
 * that two models of one architecture differ. NULL and *e on failure. */
json_t *fingerprint_model(const struct checkpoint *c, struct err *e);

#endif
