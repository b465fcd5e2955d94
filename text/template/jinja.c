/* text/template/jinja.c - see jinja.h. */
#include "text/template/jinja.h"

#include "text/template/json.h"
#include "text/template/renderer.h"

#include <stdlib.h>
#include <string.h>

#define PARSE_MAX_BYTES ((size_t)64 << 20)

struct jinja {
    struct heap heap; /* the tree lies there */
    const struct node *root;
    const struct seen_name *read;
    char *name;
};

int jinja_open(struct jinja **t, const char *name, const char *source, size_t bytes, struct err *e)
{
    *t = err_calloc(e, 1, sizeof **t, "chat template");
    struct jinja *j = *t;
    if (j == NULL)
        return -1;
    j->name = strdup(name);
    j->heap = (struct heap){.limit = PARSE_MAX_BYTES, .name = j->name, .e = e};
    if (j->name == NULL)
        ERR(e, ERR_MEMORY, "out of host memory: chat template");
    else if (setjmp(j->heap.escape) == 0)
        j->root = parse(&j->heap, source, bytes, &j->read);
    if (e->code != ERR_NONE)
        jinja_close(t);
    return e->code == ERR_NONE ? 0 : -1;
}

void jinja_close(struct jinja **t)
{
    if (*t == NULL)
        return;
    heap_free(&(*t)->heap);
    free((*t)->name);
    free(*t);
    *t = NULL;
}

bool jinja_reads(const struct jinja *t, const char *name)
{
    for (const struct seen_name *s = t->read; s != NULL; s = s->next)
        if (text_is(s->name, name))
            return true;
    return false;
}

static void set_variables(struct renderer *m, struct scope *s, const json_t *object, bool foreign)
{
    const char *key;
    size_t bytes;
    json_t *value;
    json_object_keylen_foreach((json_t *)object, key, bytes, value)
        scope_set(m, s, (struct text){key, bytes, NULL, foreign}, value_from_json(m, value, foreign));
}

/* The usual roles count as the template's text, since some templates make a special token of them ("<|" + role + "|>").
 * Any other role counts as the client's. */
static bool is_known_role(struct text t)
{
    static const char *const roles[] = {"system",    "user",     "assistant", "tool",
                                        "developer", "function", "ipython",   "model"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (text_is(t, roles[i]))
            return true;
    return false;
}

static void own_roles(struct renderer *m, struct scope *s)
{
    struct value messages = {.kind = VALUE_ABSENT};
    for (const struct binding *b = s->first; b != NULL; b = b->next)
        if (text_is(b->name, "messages"))
            messages = b->value;
    for (size_t i = 0; messages.kind == VALUE_LIST && i < messages.list->n; i++) {
        struct value turn = messages.list->item[i];
        struct value *role =
            turn.kind == VALUE_DICT ? (struct value *)dict_find_string(m, turn.dict, text_of("role")) : NULL;
        if (role != NULL && role->kind == VALUE_STRING && is_known_role(role->text))
            role->text.foreign = false;
    }
}

/* Runs of bytes with the same mark. */
static void cut(struct renderer *m, struct text t, struct jinja_text *out)
{
    size_t n = t.n > 0;
    for (size_t i = 1; i < t.n; i++)
        n += text_marked(t, i) != text_marked(t, i - 1);
    out->piece = heap_alloc(&m->heap, n, sizeof *out->piece);
    for (size_t i = 0, from = 0; i < t.n; i++)
        if (i + 1 == t.n || text_marked(t, i + 1) != text_marked(t, i)) {
            out->piece[out->n++] = (struct jinja_piece){t.s + from, i + 1 - from, text_marked(t, i)};
            from = i + 1;
        }
}

static void run_template(struct renderer *m, const struct jinja *t, const struct jinja_variables *variables,
                         struct jinja_text *out)
{
    struct scope *s = scope_new(m, NULL);
    struct builder b = {.w = &m->heap};
    m->out = &b;
    if (variables->own != NULL)
        set_variables(m, s, variables->own, false);
    if (variables->request != NULL)
        set_variables(m, s, variables->request, true);
    own_roles(m, s);
    (void)execute(m, s, t->root);
    cut(m, built(&b), out);
}

int jinja_render(const struct jinja *t, const struct jinja_variables *variables, struct jinja_text *out, struct err *e)
{
    struct renderer *m = err_calloc(e, 1, sizeof *m, "chat");
    *out = (struct jinja_text){0};
    if (m == NULL)
        return -1;
    m->now = (time_t)variables->now;
    m->heap = (struct heap){.limit = RENDERER_MAX_BYTES, .name = t->name, .e = e, .line = 1};
    out->heap = &m->heap;
    if (setjmp(m->heap.escape) == 0)
        run_template(m, t, variables, out);
    for (struct kept *k = m->kept; k != NULL; k = k->next)
        json_decref(k->json);
    if (e->code != ERR_NONE)
        jinja_text_free(out);
    return e->code == ERR_NONE ? 0 : -1;
}

void jinja_text_free(struct jinja_text *t)
{
    struct heap *w = t->heap;
    *t = (struct jinja_text){0};
    if (w == NULL)
        return;
    heap_free(w);
    free(w); /* the renderer of the whole template */
}
