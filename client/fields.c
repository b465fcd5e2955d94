/* client/fields.c - see fields.h. */
#include "client/fields.h"
#include "client/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "max-tokens" -> "max_tokens". name: at least 64 bytes. */
static void field_name(char *name, const struct opt *o)
{
    size_t n = 0;
    for (; o->name[n] != '\0' && n < 63; n++)
        name[n] = o->name[n] == '-' ? '_' : o->name[n];
    name[n] = '\0';
}

/* Takes over value. */
static int put_option(void *record, const struct opt *o, json_t *value, struct err *e)
{
    struct client_options *c = record;
    char name[64];
    field_name(name, o);
    return json_object_set_new(c->request, name, value) == 0
               ? 0
               : ERR(e, ERR_USAGE, "--%s: found a text that is not UTF-8", o->name);
}

int field_integer(void *record, const struct opt *o, const char *text, struct err *e)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0')
        return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected an integer", o->name, text);
    return put_option(record, o, json_integer(n), e);
}

int field_number(void *record, const struct opt *o, const char *text, struct err *e)
{
    char *end = NULL;
    double x = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(x))
        return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected a number", o->name, text);
    return put_option(record, o, json_real(x), e);
}

int field_text(void *record, const struct opt *o, const char *text, struct err *e)
{
    return put_option(record, o, json_string(text), e);
}

int field_true(void *record, const struct opt *o, const char *text, struct err *e)
{
    (void)text;
    return put_option(record, o, json_true(), e);
}

int field_choice(void *record, const struct opt *o, const char *text, struct err *e)
{
    bool yes = strcmp(text, "true") == 0;
    return put_option(record, o, yes || strcmp(text, "false") == 0 ? json_boolean(yes) : json_string(text), e);
}

int field_boolean(void *record, const struct opt *o, const char *text, struct err *e)
{
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
        return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected true or false", o->name, text);
    return field_choice(record, o, text, e);
}

int field_add_text(void *record, const struct opt *o, const char *text, struct err *e)
{
    struct client_options *c = record;
    json_t *list = json_object_get(c->request, o->name);
    if (list == NULL && put_option(record, o, list = json_array(), e) != 0)
        return -1;
    return json_array_append_new(list, json_string(text)) == 0
               ? 0
               : ERR(e, ERR_USAGE, "--%s: found a text that is not UTF-8", o->name);
}

/* "1,2,3" -> [1, 2, 3]; the caller decrefs; NULL on failure. */
static json_t *read_ids(const char *text, const char *option, struct err *e)
{
    json_t *list = json_array();
    for (const char *at = text;; at++) {
        char *end = NULL;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (errno != 0 || end == at || (*end != ',' && *end != '\0')) {
            ERR(e, ERR_USAGE, "%s: found \"%.80s\", expected token ids: 1,2,3", option, at);
            json_decref(list);
            return NULL;
        }
        (void)json_array_append_new(list, json_integer(id));
        if (*end == '\0')
            return list;
        at = end;
    }
}

int field_ids(void *record, const struct opt *o, const char *text, struct err *e)
{
    char option[80];
    (void)snprintf(option, sizeof option, "--%s", o->name);
    json_t *list = read_ids(text, option, e);
    return list != NULL ? put_option(record, o, list, e) : -1;
}

int field_prompt_ids(void *record, const struct opt *o, const char *text, struct err *e)
{
    struct client_options *c = record;
    json_t *list = read_ids(text, "--prompt-ids", e);
    (void)o;
    if (list != NULL)
        (void)json_object_set_new(c->request, "prompt", list);
    return list != NULL ? 0 : -1;
}

int field_bias(void *record, const struct opt *o, const char *text, struct err *e)
{
    json_t *map = json_object();
    for (const char *at = text;; at++) {
        char id[24], *end = NULL;
        size_t digits = strspn(at, "0123456789");
        double bias = digits > 0 && digits < sizeof id && at[digits] == ':' ? strtod(at + digits + 1, &end) : 0;
        if (end == NULL || end == at + digits + 1 || !isfinite(bias) || (*end != ',' && *end != '\0')) {
            json_decref(map);
            return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected ID:BIAS,...", o->name, at);
        }
        memcpy(id, at, digits);
        id[digits] = '\0';
        (void)json_object_set_new(map, id, json_real(bias));
        if (*end == '\0')
            return put_option(record, o, map, e);
        at = end;
    }
}

int field_any(void *record, const struct opt *o, const char *text, struct err *e)
{
    struct client_options *c = record;
    const char *equals = strchr(text, '=');
    json_t *value = equals != NULL ? json_loads(equals + 1, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL) : NULL;
    char name[128] = "";
    if (value == NULL || equals == text || (size_t)(equals - text) >= sizeof name) {
        json_decref(value);
        return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected NAME=JSON, e.g. top_k=5 or stop='[\"a\"]'", o->name,
                   text);
    }
    memcpy(name, text, (size_t)(equals - text));
    return json_object_set_new(c->request, name, value) == 0
               ? 0
               : ERR(e, ERR_USAGE, "--%s: \"%.80s\" is not UTF-8", o->name, text);
}
