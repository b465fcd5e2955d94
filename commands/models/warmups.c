/* commands/models/warmups.c - see warmups.h. */
#include "commands/models/warmups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TOKENS 8 /* of a prompt whose input is a text */
#define MOST_TOKENS    (1 << 20)
#define MOST_BATCH     4096
#define MOST_TIMES     100

static int read_count(struct pbtxt *p, const char *key, int64_t most, int64_t *n, struct err *e)
{
    char value[PBTXT_VALUE_BYTES], *end = NULL;
    if (pbtxt_value(p, value, e) != 0)
        return -1;
    *n = strtoll(value, &end, 10);
    if (end == value || *end != '\0' || *n < 0 || *n > most)
        return ERR(e, ERR_INPUT, "%.200s: model_warmup: %.60s: found \"%.40s\", expected a number from 0 to %lld",
                   p->what, key, value, (long long)most);
    return 0;
}

/* "dims: [ 1, 128 ]", or several fields with one number each. Multiplied into *product. */
static int read_dims(struct pbtxt *p, int64_t *product, struct err *e)
{
    bool list = pbtxt_takes(p, '[');
    int64_t n = 0;
    do {
        if (list && pbtxt_takes(p, ']'))
            return 0;
        if (read_count(p, "dims", MOST_TOKENS, &n, e) != 0)
            return -1;
        *product = n > 0 && *product <= MOST_TOKENS / n ? *product * n : MOST_TOKENS;
    } while (list);
    return 0;
}

/* { key: "input_ids" value { data_type: TYPE_INT32 dims: [ 128 ] random_data: true } }, and the value within it, which
 * has none of its own. */
static int read_input(struct wishes *w, struct pbtxt *p, struct warmup *u, bool within, struct err *e)
{
    char key[PBTXT_KEY_BYTES], value[PBTXT_VALUE_BYTES] = "";
    int64_t tokens = 1;
    bool whole = false;
    if (!pbtxt_takes(p, '{'))
        return ERR(e, ERR_INPUT, "%.200s: model_warmup: an input: found \"%.20s\", expected {", p->what, p->at);
    while (pbtxt_field(p, key, e)) {
        int rc = 0;
        if (strcmp(key, "value") == 0 && !within)
            rc = read_input(w, p, u, true, e);
        else if (strcmp(key, "dims") == 0)
            rc = read_dims(p, &tokens, e);
        else if (strcmp(key, "data_type") == 0)
            rc = pbtxt_value(p, value, e);
        else
            rc = pbtxt_skip(p, e);
        whole = strstr(value, "INT") != NULL;
        if (strcmp(key, "input_data_file") == 0)
            wishes_leave(w, "model_warmup.inputs.input_data_file");
        if (rc != 0)
            return -1;
    }
    if (whole && tokens > u->n_tokens)
        u->n_tokens = (int32_t)tokens;
    if (e->code == ERR_NONE && !pbtxt_takes(p, '}'))
        ERR(e, ERR_INPUT, "%.200s: model_warmup: an input is not terminated", p->what);
    return e->code == ERR_NONE ? 0 : -1;
}

static int read_field(struct wishes *w, struct pbtxt *p, const char *key, struct warmup *u, struct err *e)
{
    char value[PBTXT_VALUE_BYTES];
    int64_t n = 0;
    if (strcmp(key, "inputs") == 0)
        return read_input(w, p, u, false, e);
    if (strcmp(key, "name") == 0) {
        int rc = pbtxt_value(p, value, e);
        (void)snprintf(u->name, sizeof u->name, "%.39s", value);
        return rc;
    }
    if (strcmp(key, "batch_size") == 0) {
        if (read_count(p, key, MOST_BATCH, &n, e) != 0)
            return -1;
        u->batch = n > 0 ? (int32_t)n : 1; /* 0: the model has no batches */
        return 0;
    }
    if (strcmp(key, "count") == 0) {
        if (read_count(p, key, MOST_TIMES, &n, e) != 0)
            return -1;
        u->count = n > 0 ? (int32_t)n : 1; /* as in Triton, where the default is 1 */
        return 0;
    }
    wishes_leave(w, "model_warmup.?");
    return pbtxt_skip(p, e);
}

static int read_one(struct wishes *w, struct pbtxt *p, struct err *e)
{
    struct warmup u = {.batch = 1, .count = 1};
    char key[PBTXT_KEY_BYTES];
    if (!pbtxt_takes(p, '{'))
        return ERR(e, ERR_INPUT, "%.200s: model_warmup: found \"%.20s\", expected {", p->what, p->at);
    while (pbtxt_field(p, key, e))
        if (read_field(w, p, key, &u, e) != 0)
            return -1;
    if (e->code == ERR_NONE && !pbtxt_takes(p, '}'))
        ERR(e, ERR_INPUT, "%.200s: model_warmup is not terminated", p->what);
    if (e->code != ERR_NONE)
        return -1;
    if (w->n_warmups == WISHES_WARMUPS)
        return ERR(e, ERR_INPUT, "%.200s: found more than %d entries of model_warmup", p->what, WISHES_WARMUPS);
    u.n_tokens = u.n_tokens > 0 ? u.n_tokens : DEFAULT_TOKENS;
    w->warmup[w->n_warmups++] = u;
    return 0;
}

int warmups_read(struct wishes *w, struct pbtxt *p, struct err *e)
{
    if (!pbtxt_takes(p, '['))
        return read_one(w, p, e);
    while (!pbtxt_takes(p, ']'))
        if (read_one(w, p, e) != 0)
            return -1;
    return 0;
}
