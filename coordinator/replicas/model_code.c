/* coordinator/replicas/model_code.c - see model_code.h. */
#include "coordinator/replicas/model_code.h"
#include "coordinator/replicas/order_code.h"

#include <stdlib.h>
#include <string.h>

/* A field more has to travel, too: see to it, then change the size. */
_Static_assert(sizeof(struct model_order) == 4248 && sizeof(struct load_phases) == N_LOAD_PHASES * sizeof(double),
               "put_... and get_... know every field");

static void put_text(struct wire_out *w, const char *text)
{
    wire_put_array(w, text, strlen(text), 1);
}

void model_order_encode(struct wire_out *w, const struct model_order *o)
{
    wire_put_u8(w, LINK_MODEL_ORDER);
    wire_put_i32(w, (int32_t)o->kind);
    wire_put_i32(w, o->slot);
    if (o->kind != MODEL_LOAD)
        return;
    put_text(w, o->name);
    put_text(w, o->dir);
    wire_put_i32(w, o->vocab);
}

void model_word_encode(struct wire_out *w, const struct model_word *m)
{
    wire_put_u8(w, LINK_MODEL_WORD);
    wire_put_i32(w, (int32_t)m->kind);
    wire_put_i32(w, m->slot);
    wire_put_i32(w, (int32_t)m->why.code);
    put_text(w, m->why.text);
    wire_put_u64(w, (uint64_t)m->free_before);
    wire_put_u64(w, (uint64_t)m->freed);
    for (int i = 0; i < N_LOAD_PHASES; i++)
        wire_put_f64(w, m->phases.seconds[i]);
}

/* A text of `least` bytes or more, without NUL. */
static void get_text(struct wire_in *w, char *text, size_t bytes, size_t least, const char *what)
{
    size_t n = wire_get_count(w, bytes - 1, 1, what);
    (void)wire_get(w, text, n);
    text[n] = '\0';
    if (n < least || strlen(text) != n)
        wire_fail(w, what);
}

static void get_kind(struct wire_in *w, enum link_kind kind)
{
    if (wire_get_u8(w) != (unsigned)kind)
        wire_fail(w, "the message's kind");
}

static void get_order(struct wire_in *w, struct model_order *o, int n_slots)
{
    get_kind(w, LINK_MODEL_ORDER);
    o->kind = (enum model_order_kind)wire_get_i32(w, MODEL_LOAD, MODEL_STOP, "the order's kind");
    o->slot = wire_get_i32(w, 0, n_slots - 1, "a model's number");
    if (o->kind != MODEL_LOAD)
        return;
    get_text(w, o->name, sizeof o->name, 1, "a model's name");
    get_text(w, o->dir, sizeof o->dir, 1, "a model's folder");
    o->vocab = wire_get_i32(w, 1, INT32_MAX, "a vocabulary");
}

static void get_word(struct wire_in *w, struct model_word *m, int n_slots)
{
    char why[ERR_TEXT_BYTES];
    get_kind(w, LINK_MODEL_WORD);
    m->kind = (enum model_word_kind)wire_get_i32(w, MODEL_READY, MODEL_ENDED, "the report's kind");
    m->slot = wire_get_i32(w, 0, n_slots - 1, "a model's number");
    enum err_code code = (enum err_code)wire_get_i32(w, ERR_NONE, ERR_RESUME, "an error's code");
    get_text(w, why, sizeof why, 0, "an error's text");
    if (code != ERR_NONE)
        ERR(&m->why, code, "%s", why);
    m->free_before = (int64_t)wire_get_u64(w);
    m->freed = (int64_t)wire_get_u64(w);
    for (int i = 0; i < N_LOAD_PHASES; i++)
        m->phases.seconds[i] = wire_get_f64(w);
    if (m->kind == MODEL_SIGNAL || (m->kind == MODEL_FAILED) != (m->why.code != ERR_NONE))
        wire_fail(w, "a model's error");
}

struct model_order *model_order_decode(const void *data, size_t bytes, int n_slots, struct err *e)
{
    struct wire_in w = {data, bytes, NULL};
    struct model_order *o = err_calloc(e, 1, sizeof *o, "order");
    if (o == NULL)
        return NULL;
    get_order(&w, o, n_slots);
    if (wire_end(&w, "an order of rank 0 about a model", e) == 0)
        return o;
    free(o);
    return NULL;
}

struct model_word *model_word_decode(const void *data, size_t bytes, int n_slots, struct err *e)
{
    struct wire_in w = {data, bytes, NULL};
    struct model_word *m = err_calloc(e, 1, sizeof *m, "word of a model");
    if (m == NULL)
        return NULL;
    get_word(&w, m, n_slots);
    if (wire_end(&w, "a word of a model", e) == 0)
        return m;
    free(m);
    return NULL;
}
