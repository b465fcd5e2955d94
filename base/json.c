/* base/json.c - see json.h. */
#include "base/json.h"
#include "base/bom.h"
#include "base/number.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JSON_MAX_DEPTH 64

const char *json_type_name(const json_t *value)
{
    if (value == NULL)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* jansson itself limits its recursion to 2048 levels, deeper than anything read here, but not the number of values.
 * Strings are skipped as JSON defines them; malformed text is left to the parser. */
void json_measure(const char *text, size_t bytes, struct json_limits *found)
{
    struct json_limits *m = found;
    int depth = 0;
    *m = (struct json_limits){.values = 1};
    for (const char *at = text, *end = text + bytes; at < end; at++) {
        if (*at == '"') {
            for (at++; at < end && *at != '"'; at++)
                at += *at == '\\';
        } else if (*at == '{' || *at == '[') {
            m->depth = ++depth > m->depth ? depth : m->depth;
            m->lists++;
            m->values++;
        } else if (*at == '}' || *at == ']') {
            depth--;
        } else if (*at == ',') {
            m->values++;
        } else if (*at == ':') {
            m->members++;
        }
    }
}

/* The key of the outermost object that was read last before text + bytes, if it fits; "" outside of the object. */
static void key_before(const char *text, size_t bytes, char *key, size_t key_bytes)
{
    int depth = 0;
    char last = '\0'; /* counts of the structural characters */
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (strchr("{}[],:", c) != NULL && c != '\0') {
            depth += (c == '{' || c == '[') - (c == '}' || c == ']');
            last = c == '[' && depth == 1 ? '\0' : c;
        }
        if (c != '"')
            continue;
        size_t start = i + 1;
        for (i++; i < bytes && text[i] != '"'; i++)
            i += text[i] == '\\';
        if (depth == 1 && (last == '{' || last == ',') && i < bytes && i - start < key_bytes) {
            memcpy(key, text + start, i - start);
            key[i - start] = '\0';
        }
        last = '"';
    }
    if (depth < 1)
        key[0] = '\0';
}

int json_check_limits(const struct json_limits *found, const struct json_limits *limits, const char *what,
                      struct err *e)
{
    if (found->depth > limits->depth)
        return ERR(e, ERR_INPUT, "%s: JSON nested %d deep, at most %d is accepted", what, found->depth, limits->depth);
    if (found->values > limits->values)
        return ERR(e, ERR_INPUT, "%s: %zu JSON values, at most %zu are accepted", what, found->values, limits->values);
    if (found->lists > limits->lists)
        return ERR(e, ERR_INPUT, "%s: %zu JSON arrays and objects, at most %zu are accepted", what, found->lists,
                   limits->lists);
    if (found->members > limits->members)
        return ERR(e, ERR_INPUT, "%s: %zu members of JSON objects, at most %zu are accepted", what, found->members,
                   limits->members);
    return 0;
}

/* The position of what follows the text's first value, which is valid, and white space. */
static size_t rest_at(const char *text, size_t bytes)
{
    json_error_t end = {.position = 0};
    json_decref(json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &end));
    size_t at = end.position > 0 ? (size_t)end.position : 0;
    while (at < bytes && text[at] != '\0' && strchr(" \t\r\n", text[at]) != NULL)
        at++;
    return at;
}

/* Why jansson refuses the text. key: [key_bytes] as in struct json_failure. */
static void explain(const char *text, size_t bytes, const char *what, const json_error_t *error, char *key,
                    size_t key_bytes, struct err *e)
{
    size_t at = error->position > 0 ? (size_t)error->position : 0;
    if (json_error_code(error) == json_error_end_of_input_expected) {
        ERR(e, ERR_INPUT, "%s: not one JSON value: found more text at byte %zu, expected the end", what,
            rest_at(text, bytes));
        return;
    }
    key_before(text, at < bytes ? at : bytes, key, key_bytes);
    ERR(e, ERR_INPUT, "%s: not valid JSON: line %d, column %d: %s", what, error->line, error->column, error->text);
}

json_t *json_parse_limited(const char *text, size_t bytes, const char *what, const struct json_limits *limits,
                           struct json_failure *failure, struct err *e)
{
    struct json_limits found;
    json_error_t error;
    *failure = (struct json_failure){0};
    json_measure(text, bytes, &found);
    if (json_check_limits(&found, limits, what, e) != 0) {
        failure->too_large = true;
        return NULL;
    }
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL)
        explain(text, bytes, what, &error, failure->key, sizeof failure->key, e);
    return root;
}

/* Jansson's structs and tables, with what malloc adds. */
#define VALUE_BYTES  32
#define LIST_BYTES   64
#define OBJECT_BYTES 256
#define MEMBER_BYTES 96

size_t json_memory(const json_t *value)
{
    const char *key;
    const json_t *part;
    size_t i, bytes = json_is_boolean(value) || json_is_null(value)
                          ? 0
                          : VALUE_BYTES; /* shared constants, no memory of their own */
    if (json_is_string(value))
        bytes += VALUE_BYTES + json_string_length(value);
    if (json_is_array(value))
        bytes += LIST_BYTES + json_array_size(value) * sizeof(json_t *);
    if (json_is_object(value))
        bytes += OBJECT_BYTES;
    json_object_foreach((json_t *)value, key, part) bytes += MEMBER_BYTES + strlen(key) + json_memory(part);
    json_array_foreach(value, i, part) bytes += json_memory(part);
    return bytes;
}

/* Integers as integers again wherever a double holds them exactly. NULL: out of memory. */
static json_t *restore_integers(json_t *value)
{
    const char *key;
    json_t *part;
    size_t i;
    int64_t n;
    bool good = true;
    if (json_is_real(value) && json_to_int(value, &n)) {
        json_decref(value);
        return json_integer(n);
    }
    json_object_foreach(value, key, part) good =
        good && json_object_set_new(value, key, restore_integers(json_incref(part))) == 0;
    json_array_foreach(value, i, part) good =
        good && json_array_set_new(value, i, restore_integers(json_incref(part))) == 0;
    if (good)
        return value;
    json_decref(value);
    return NULL;
}

json_t *json_parse_model(const char *text, size_t bytes, const char *what, struct err *e)
{
    json_error_t error;
    struct err first = {0};
    json_t *root = json_parse(text, bytes, what, &first);
    struct json_limits found;
    json_measure(text, bytes, &found);
    if (root == NULL && found.depth <= JSON_MAX_DEPTH) {
        root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
        root = root != NULL ? restore_integers(root) : NULL;
    }
    if (root == NULL)
        *e = first;
    return root;
}

json_t *json_parse(const char *text, size_t bytes, const char *what, struct err *e)
{
    static const struct json_limits limits = {JSON_MAX_DEPTH, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    struct json_failure failure;
    return json_parse_limited(text, bytes, what, &limits, &failure, e);
}

/* Replaces `bytes` digits of a real number by the fewest that read back as the same number, still a real one. */
static size_t shorten_number(char *number, size_t bytes)
{
    char text[NUMBER_BYTES + 2], kept[40];
    if (bytes >= sizeof kept)
        return bytes;
    memcpy(kept, number, bytes);
    kept[bytes] = '\0';
    size_t n = (size_t)number_text(text, strtod(kept, NULL));
    if (strpbrk(text, ".e") == NULL)
        n += (size_t)snprintf(text + n, 3, ".0");
    if (n > bytes)
        return bytes;
    memcpy(number, text, n);
    return n;
}

/* One string, or one run of other characters, from text[i]: where it ends. */
static size_t end_of_part(const char *text, size_t i)
{
    if (text[i] != '"')
        return i + 1 + (strchr("-0123456789", text[i]) != NULL ? strspn(text + i + 1, "0123456789+-.eE") : 0);
    for (i++; text[i] != '"'; i++)
        i += text[i] == '\\';
    return i + 1;
}

char *json_text(const json_t *value, size_t flags)
{
    char *text = json_dumps(value, flags);
    size_t n = 0;
    for (size_t i = 0, end; text != NULL && text[i] != '\0'; i = end) {
        end = end_of_part(text, i);
        size_t bytes = end - i;
        memmove(text + n, text + i, bytes);
        bool real = strchr("-0123456789", text[n]) != NULL && memchr(text + n, '.', bytes) != NULL;
        real = real || (strchr("-0123456789", text[n]) != NULL && memchr(text + n, 'e', bytes) != NULL);
        n += real ? shorten_number(text + n, bytes) : bytes;
    }
    if (text != NULL)
        text[n] = '\0';
    return text;
}

int json_print(const json_t *value, FILE *f, size_t flags)
{
    char *text = json_text(value, flags);
    int rc = text != NULL && fputs(text, f) >= 0 ? 0 : -1;
    free(text);
    return rc;
}

char *file_read(const char *path, size_t max_bytes, size_t *bytes, struct err *e)
{
    char *text = NULL;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a pipe would block until there is a writer */
    if (fd < 0) {
        int why = errno;
        bool nowhere = why == ENOENT && lstat(path, &info) == 0;
        ERR(e, ERR_IO, "%s: cannot open: %s", path, nowhere ? "a dangling link" : strerror(why));
        return NULL;
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        ERR(e, ERR_INPUT, "%s: not a regular file", path);
        goto out;
    }
    if ((uint64_t)info.st_size > max_bytes) {
        ERR(e, ERR_INPUT, "%s: %lld bytes, at most %zu are accepted", path, (long long)info.st_size, max_bytes);
        goto out;
    }
    size_t size = (size_t)info.st_size, got = 0;
    text = err_calloc(e, size + 1, 1, path);
    while (text != NULL && got < size) {
        ssize_t n = read(fd, text + got, size - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            ERR(e, ERR_IO, "%s: read %zu of %zu bytes: %s", path, got, size, n < 0 ? strerror(errno) : "file shrank");
            free(text);
            text = NULL;
            break;
        }
        got += (size_t)n;
    }
    *bytes = size;
out:
    (void)close(fd);
    return text;
}

char *file_read_text(const char *path, size_t max_bytes, size_t *bytes, struct err *e)
{
    char *text = file_read(path, max_bytes, bytes, e);
    int mark = text != NULL ? bom_bytes(text, *bytes, path, e) : -1;
    if (mark < 0) {
        free(text);
        return NULL;
    }
    *bytes -= (size_t)mark;
    memmove(text, text + mark, *bytes + 1);
    return text;
}

json_t *json_read_model_file(const char *path, size_t max_bytes, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read_text(path, max_bytes, &bytes, e);
    if (text == NULL)
        return NULL;
    json_t *root = json_parse_model(text, bytes, path, e);
    free(text);
    return root;
}

json_t *json_read_file(const char *path, size_t max_bytes, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read_text(path, max_bytes, &bytes, e);
    if (text == NULL)
        return NULL;
    json_t *root = json_parse(text, bytes, path, e);
    free(text);
    return root;
}

static const json_t *member(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value == NULL || json_is_null(value) ? NULL : value;
}

json_t *json_logprob(float x)
{
    return json_real(isfinite(x) ? number_of_float(x) : -9999.0);
}

bool json_to_int(const json_t *value, int64_t *n)
{
    double x = json_real_value(value);
    if (json_is_real(value) && !(fabs(x) < 9e15 && x == floor(x)))
        return false;
    *n = json_is_real(value) ? (int64_t)x : json_integer_value(value);
    return json_is_number(value);
}

int64_t json_get_int(const json_t *object, const char *key, int64_t missing, int64_t low, int64_t high,
                     const char *what, struct err *e)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return missing;
    int64_t n;
    if (!json_to_int(value, &n)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected an integer in [%lld, %lld]", what, key, json_type_name(value),
            (long long)low, (long long)high);
        return missing;
    }
    if (n < low || n > high) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %lld, expected an integer in [%lld, %lld]", what, key, (long long)n,
            (long long)low, (long long)high);
        return missing;
    }
    return n;
}

double json_get_real(const json_t *object, const char *key, double missing, double low, double high, const char *what,
                     struct err *e)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return missing;
    if (!json_is_number(value)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected a number in [%g, %g]", what, key, json_type_name(value), low,
            high);
        return missing;
    }
    double x = json_number_value(value);
    if (!(x >= low && x <= high)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %g, expected a number in [%g, %g]", what, key, x, low, high);
        return missing;
    }
    return x;
}

bool json_get_bool(const json_t *object, const char *key, bool missing, const char *what, struct err *e)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return missing;
    if (!json_is_boolean(value)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected true or false", what, key, json_type_name(value));
        return missing;
    }
    return json_boolean_value(value);
}

const char *json_get_string(const json_t *object, const char *key, const char *missing, const char *what, struct err *e)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return missing;
    if (!json_is_string(value)) {
        ERR(e, ERR_INPUT, "%s: \"%s\" is %s, expected a string", what, key, json_type_name(value));
        return missing;
    }
    return json_string_value(value);
}
