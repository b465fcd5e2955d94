/* base/json.h - bounded reading of JSON files and typed, range-checked access to their members, over jansson.
 *
 * All of it is for outside input: sizes, depth, duplicate keys and ranges are checked, and every message names the
 * file (`what`), the key, what was found and what was expected. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Parse `bytes` bytes. Duplicate keys, trailing text, nesting deeper than 64 and invalid UTF-8 are refused; \u0000 is
 * allowed in strings (use json_string_length). `what` names the text in messages. The caller decrefs the result;
 * NULL on failure. */
json_t *json_parse(const char *text, size_t bytes, const char *what, struct err *e);

struct json_limits {
    int depth;
    size_t values;  /* of any kind */
    size_t lists;   /* arrays and objects: they take most memory per byte of text */
    size_t members; /* of all objects: they take most time to parse */
};

/* Counts in *found, without allocating, the values that a text contains; `values` is never too low. */
void json_measure(const char *text, size_t bytes, struct json_limits *found);
int json_check_limits(const struct json_limits *found, const struct json_limits *limits, const char *what,
                      struct err *e);

/* The same with other limits; a text that exceeds them also sets *too_large. On failure key (of key_bytes) names the
 * member of the outermost object that contains the error, "" if it is unknown. */
struct json_failure {
    bool too_large;
    char key[64];
};
json_t *json_parse_limited(const char *text, size_t bytes, const char *what, const struct json_limits *limits,
                           struct json_failure *failure, struct err *e);

/* The approximate memory in bytes of a value with all its members, at most 2048 levels deep. */
size_t json_memory(const json_t *value);

/* json_parse for a file of at most max_bytes bytes, which may begin with a byte order mark. A missing file is
 * ERR_IO. */
json_t *json_read_file(const char *path, size_t max_bytes, struct err *e);

/* The same for the files of a model's folder, in which transformers writes integers beyond 64 bits for "not known"
 * ("model_max_length": 1000000000000000019884624838656): such an integer becomes a real number. */
json_t *json_parse_model(const char *text, size_t bytes, const char *what, struct err *e);
json_t *json_read_model_file(const char *path, size_t max_bytes, struct err *e);

/* The whole file as bytes (NUL-terminated, the NUL not counted in *bytes); the caller frees. NULL on failure. */
char *file_read(const char *path, size_t max_bytes, size_t *bytes, struct err *e);

/* The same for a text file, without the byte order mark of UTF-8; one of another encoding is refused (base/bom.h). */
char *file_read_text(const char *path, size_t max_bytes, size_t *bytes, struct err *e);

/* Member access. A missing or null member gives `missing`; a member of another type or outside [low, high] sets *e and
 * gives `missing` too. Integers are accepted as JSON integers or as reals without fraction. */
int64_t json_get_int(const json_t *object, const char *key, int64_t missing, int64_t low, int64_t high,
                     const char *what, struct err *e);
double json_get_real(const json_t *object, const char *key, double missing, double low, double high, const char *what,
                     struct err *e);
bool json_get_bool(const json_t *object, const char *key, bool missing, const char *what, struct err *e);
/* Borrowed from the object. */
const char *json_get_string(const json_t *object, const char *key, const char *missing, const char *what,
                            struct err *e);

/* json_dumps with real numbers in the fewest digits that read back as the same: 0.004, not 0.0040000000000000001. The
 * caller frees; NULL on failure. And the same to a stream: 0, or -1. */
char *json_text(const json_t *value, size_t flags);
int json_print(const json_t *value, FILE *f, size_t flags);

/* A log-probability as a JSON value. JSON has no infinities, so a forbidden token has -9999, as in vLLM. It has no more
 * digits than a float needs. */
json_t *json_logprob(float x);

/* Whether the value is a JSON integer or a real without fraction; *out gets it. */
bool json_to_int(const json_t *value, int64_t *n);

/* The JSON type of a value as a word for messages: "an object", "a string", ... */
const char *json_type_name(const json_t *value);

#endif
