/* base/json.c - see json.h. */
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
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

/* jansson bounds its recursion at 2048 levels, which is deeper than any file that we read: count before it parses.
 * Strings are skipped as JSON defines them; malformed text is left to the parser. */
static int max_depth(const char *text, size_t bytes)
{
    int depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > deepest)
                deepest = depth;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return deepest;
}

json_t *json_parse(const char *text, size_t bytes, const char *what, struct err *e)
{
    int depth = max_depth(text, bytes);
    if (depth > JSON_MAX_DEPTH) {
        ERR(e, ERR_INPUT, "%s: JSON nested %d deep, at most %d is accepted", what, depth, JSON_MAX_DEPTH);
        return NULL;
    }
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL)
        ERR(e, ERR_INPUT, "%s: not valid JSON: line %d, column %d: %s", what, error.line, error.column, error.text);
    return root;
}

char *file_read(const char *path, size_t max_bytes, size_t *bytes, struct err *e)
{
    char *text = NULL;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        ERR(e, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
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

json_t *json_read_file(const char *path, size_t max_bytes, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read(path, max_bytes, &bytes, e);
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

int64_t json_get_int(const json_t *object, const char *key, int64_t missing, int64_t low, int64_t high,
                     const char *what, struct err *e)
{
    const json_t *value = member(object, key);
    if (value == NULL)
        return missing;
    int64_t n;
    if (json_is_integer(value)) {
        n = json_integer_value(value);
    } else if (json_is_real(value) && fabs(json_real_value(value)) < 9e15 &&
               json_real_value(value) == floor(json_real_value(value))) {
        n = (int64_t)json_real_value(value);
    } else {
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
