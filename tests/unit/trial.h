/* tests/unit/trial.h - parses a message, and checks its result or its refusal. */
#ifndef TESTS_UNIT_TRIAL_H
#define TESTS_UNIT_TRIAL_H

#include "protocol/protocol.h"
#include "tests/unit/unit.h"

#include <string.h>

static const struct protocol_model model = {.name = "demo", .vocab = 1000, .n_eos = 2, .eos = {1, 7}};

struct trial {
    struct protocol_message m;
    struct protocol_error error;
    int rc;
};

static inline void parse_bytes(struct trial *t, const char *json, size_t bytes)
{
    t->rc = protocol_parse(&t->m, json, bytes, &model, true, &t->error);
    assert_int_equal(t->rc, t->error.code == 0 ? 0 : -1);
}

/* The message must be valid. */
static inline struct protocol_generate *good(struct trial *t, const char *json)
{
    parse_bytes(t, json, strlen(json));
    if (t->rc != 0)
        print_error("%s\n%s: %s\n", json, t->error.field, t->error.message);
    assert_int_equal(t->rc, 0);
    return &t->m.generate;
}

static inline void bad(const char *json, int code, const char *field, const char *message)
{
    struct trial t;
    parse_bytes(&t, json, strlen(json));
    if (t.error.code != code || strcmp(t.error.field, field) != 0 || strcmp(t.error.message, message) != 0)
        print_error("%.300s\ngot %d %s: %s\nexpected %d %s: %s\n", json, t.error.code, t.error.field, t.error.message,
                    code, field, message);
    assert_int_equal(t.error.code, code);
    assert_string_equal(t.error.field, field);
    assert_string_equal(t.error.message, message);
    protocol_message_close(&t.m);
}

static inline void close_trial(struct trial *t)
{
    protocol_message_close(&t->m);
}

#endif
