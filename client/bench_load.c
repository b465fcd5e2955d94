/* client/bench_load.c - see bench_load.h. */
#include "client/bench_load.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DATASET_MAX_BYTES  ((size_t)1 << 30)
#define DATASET_MAX_OUTPUT (1 << 24)

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* In (0, 1]. */
static double uniform(uint64_t *state)
{
    return (double)((next_random(state) >> 11) + 1) * 0x1p-53;
}

/* Between (1 - ratio) and (1 + ratio) times `length`, both included; at least 1. */
static int64_t draw_length(uint64_t *random, int64_t length, double ratio)
{
    int64_t low = (int64_t)floor((double)length * (1 - ratio)), high = (int64_t)ceil((double)length * (1 + ratio));
    int64_t n = ratio > 0 ? low + (int64_t)(next_random(random) % (uint64_t)(high - low + 1)) : length;
    return n > 0 ? n : 1;
}

static int make_random(struct bench_load *l, const struct client_bench_options *o, int64_t vocab, uint64_t *random,
                       struct err *e)
{
    for (int64_t i = 0; i < l->n; i++) {
        int64_t n = draw_length(random, o->input_len, o->range_ratio);
        json_t *ids = json_array();
        l->wish[i].n_output = draw_length(random, o->output_len, o->range_ratio);
        l->wish[i].prompt = ids;
        for (int64_t k = 0; k < n; k++)
            if (json_array_append_new(ids, json_integer((json_int_t)(next_random(random) % (uint64_t)vocab))) != 0)
                return ERR(e, ERR_MEMORY, "out of host memory: a prompt of %lld tokens", (long long)n);
    }
    return 0;
}

/* One line of a dataset. */
static int read_wish(struct bench_wish *w, const char *line, size_t bytes, const char *what, struct err *e)
{
    json_t *object = json_parse(line, bytes, what, e);
    json_t *prompt = json_object_get(object, "prompt");
    if (e->code == ERR_NONE && !json_is_string(prompt) && !json_is_array(prompt))
        (void)ERR(e, ERR_INPUT, "%s: \"prompt\" is %s, expected a string or a list of token ids", what,
                  json_type_name(prompt));
    if (e->code == ERR_NONE && json_object_get(object, "output_len") == NULL)
        (void)ERR(e, ERR_INPUT, "%s: \"output_len\" is missing, expected an integer", what);
    w->n_output = json_get_int(object, "output_len", 0, 1, DATASET_MAX_OUTPUT, what, e);
    w->prompt = e->code == ERR_NONE ? json_incref(prompt) : NULL;
    json_decref(object);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Lines in order; starts over when there are too few. */
static int read_dataset(struct bench_load *l, const char *path, struct err *e)
{
    size_t bytes = 0;
    char *text = file_read_text(path, DATASET_MAX_BYTES, &bytes, e);
    int64_t n = 0, number = 0;
    for (size_t at = 0; text != NULL && at < bytes && n < l->n && e->code == ERR_NONE; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        char what[600];
        (void)snprintf(what, sizeof what, "%.500s: line %lld", path, (long long)number + 1);
        if (strspn(text + at, " \t\r") < length && read_wish(&l->wish[n], text + at, length, what, e) == 0)
            n++;
        at += length + 1;
    }
    free(text);
    if (e->code == ERR_NONE && n == 0)
        (void)ERR(e, ERR_INPUT, "%s: no prompt, expected one JSON object per line", path);
    for (int64_t i = n; i < l->n && e->code == ERR_NONE; i++)
        l->wish[i] = (struct bench_wish){json_incref(l->wish[i - n].prompt), l->wish[i - n].n_output, 0};
    return e->code == ERR_NONE ? 0 : -1;
}

/* A Poisson process, scaled so that the last request comes at the time that the rate implies: all seeds offer the same
 * rate. */
static void set_arrivals(struct bench_load *l, double rate, uint64_t *random)
{
    double at = 0;
    for (int64_t i = 0; i < l->n && isfinite(rate); i++) {
        at += -log(uniform(random)) / rate;
        l->wish[i].at = at;
    }
    double stretch = at > 0 ? (double)l->n / rate / at : 0;
    for (int64_t i = 0; i < l->n; i++)
        l->wish[i].at *= stretch;
}

int bench_load_open(struct bench_load *l, const struct client_bench_options *o, int64_t vocab, struct err *e)
{
    uint64_t random = (uint64_t)o->seed * 0x2545f4914f6cdd1du + 1;
    *l = (struct bench_load){.n = o->num_prompts, .exact = o->dataset == NULL || o->ignore_eos};
    l->wish = err_calloc(e, (size_t)l->n, sizeof *l->wish, "requests");
    if (l->wish == NULL)
        return -1;
    if ((o->dataset != NULL ? read_dataset(l, o->dataset, e) : make_random(l, o, vocab, &random, e)) != 0)
        return -1;
    set_arrivals(l, o->request_rate, &random);
    return 0;
}

void bench_load_close(struct bench_load *l)
{
    for (int64_t i = 0; l->wish != NULL && i < l->n; i++)
        json_decref(l->wish[i].prompt);
    free(l->wish);
    *l = (struct bench_load){0};
}
