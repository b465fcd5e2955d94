/* text/grammar/grammar.c - see grammar.h. */
#include "text/grammar/grammar.h"

#include "base/json.h"
#include "text/grammar/calls.h"
#include "text/grammar/choice.h"
#include "text/grammar/regex.h"
#include "text/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#define MASK_EFFORT 100000 /* new places visited for a mask: about 3 ms */
#define MAX_CHOICES 10000

static int finish_grammar(struct grammar *g, int start, struct err *e)
{
    g->start = start;
    if (e->code != ERR_NONE)
        return -1;
    if (start < 0 || !graph_prune(&g->graph, start))
        return ERR(e, ERR_INPUT, "no text matches this form");
    g->start = graph_share(&g->graph, start);
    return e->code == ERR_NONE ? 0 : -1;
}

int grammar_of_schema(struct grammar *g, const json_t *schema, struct err *e)
{
    graph_open(&g->graph, e);
    return finish_grammar(g, schema_graph(&g->graph, schema, graph_return(&g->graph)), e);
}

int grammar_of_object(struct grammar *g, struct err *e)
{
    json_t *schema = json_pack("{s:s}", "type", "object");
    if (schema == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory");
    int rc = grammar_of_schema(g, schema, e);
    json_decref(schema);
    return rc;
}

int grammar_of_regex(struct grammar *g, const char *regex, size_t bytes, struct err *e)
{
    graph_open(&g->graph, e);
    return finish_grammar(g, regex_graph(&g->graph, regex, bytes, REGEX_TEXT, graph_return(&g->graph)), e);
}

int grammar_of_choice(struct grammar *g, const json_t *texts, struct err *e)
{
    size_t n = json_array_size(texts);
    graph_open(&g->graph, e);
    if (!json_is_array(texts) || n == 0 || n > MAX_CHOICES)
        return ERR(e, ERR_INPUT, "choice: %zu texts, expected an array of 1 to %d", n, MAX_CHOICES);
    struct choice_text *text = err_calloc(e, n, sizeof *text, "choice");
    for (size_t i = 0; text != NULL && i < n; i++) {
        const json_t *one = json_array_get(texts, i);
        text[i] = (struct choice_text){json_string_value(one), json_string_length(one)};
        if (json_string_length(one) == 0)
            ERR(e, ERR_INPUT, "choice: number %zu is %s, expected a text that is not empty", i,
                json_is_string(one) ? "empty" : json_type_name(one));
    }
    int start = e->code == ERR_NONE ? choice_graph(&g->graph, text, n, graph_return(&g->graph)) : -1;
    free(text);
    return finish_grammar(g, start, e);
}

int grammar_of_calls(struct grammar *g, const json_t *asked, struct err *e)
{
    graph_open(&g->graph, e);
    return finish_grammar(g, calls_graph(&g->graph, asked, graph_return(&g->graph)), e);
}

void grammar_close(struct grammar *g)
{
    graph_close(&g->graph);
}

static void tidy(struct grammar_run *r)
{
    walk_tidy(r->walk);
    if (r->walk->crowded)
        r->walk = walk_part(r->lexicon->walks, r->walk, (int *const[]){&r->now.state, &r->ahead.state});
    r->machine = &r->walk->machine;
}

int grammar_run_open(struct grammar_run *r, const struct grammar *g, const struct lexicon *l, struct err *e)
{
    *r = (struct grammar_run){.lexicon = l, .now.state = MACHINE_DEAD, .ahead.state = MACHINE_DEAD};
    r->at = &r->now;
    r->walk = walk_join(l->walks, &g->graph, g->start, (int *const[]){&r->now.state, &r->ahead.state}, e);
    if (r->walk == NULL)
        return -1;
    tidy(r);
    machine_rest(r->machine, MASK_EFFORT);
    r->now.state = machine_begin(r->machine, g->start);
    return 0;
}

void grammar_run_close(struct grammar_run *r)
{
    if (r->walk != NULL)
        walk_leave(r->walk, (int *const[]){&r->now.state, &r->ahead.state});
    forced_close(&r->now.forced);
    forced_close(&r->ahead.forced);
    r->walk = NULL;
}

/* The tokens that may come in a state, from a mask that was kept. */
static bool get_mask(const struct grammar_run *r, int state, uint32_t *mask)
{
    const uint32_t *kept = walk_mask(r->lexicon->walks, r->walk, state);
    if (kept != NULL)
        memcpy(mask, kept, (size_t)r->lexicon->n_words * sizeof *mask);
    return kept != NULL;
}

/* Computes the mask; an expensive one is kept. */
static void make_mask(const struct grammar_run *r, int state, uint32_t *mask)
{
    enum { MUCH = 40 }; /* a mask that visits more nodes costs more than a copy */
    if (lexicon_mask(r->lexicon, r->machine, state, mask) > MUCH)
        walk_keep(r->lexicon->walks, r->walk, state, mask, r->lexicon->n_words);
}

/* The tokens that may come in the present state. */
static void find_mask(struct grammar_run *r, uint32_t *mask)
{
    int state = r->at->state, near;
    if (get_mask(r, state, mask))
        return;
    if ((near = lexicon_near(r->machine, state)) < 0) {
        make_mask(r, state, mask);
        return;
    }
    if (!get_mask(r, near, mask))
        make_mask(r, near, mask);
    (void)lexicon_mask_from(r->lexicon, r->machine, state, near, mask);
    if (r->machine->lossy) /* they may belong to different walks */
        make_mask(r, state, mask);
    else
        walk_keep(r->lexicon->walks, r->walk, state, mask, r->lexicon->n_words);
}

static int check_walk(struct grammar_run *r, struct err *e)
{
    if (r->walk->err.code != ERR_NONE)
        return ERR(e, r->walk->err.code, "%s", r->walk->err.text);
    if (machine_tired(r->machine))
        return ERR(e, ERR_UNSUPPORTED, "the requested form has too many continuations");
    return 0;
}

static bool is_empty(const uint32_t *mask, int n_words)
{
    for (int i = 0; i < n_words; i++)
        if (mask[i] != 0)
            return false;
    return true;
}

int32_t grammar_run_forced(struct grammar_run *r)
{
    struct grammar_place *at = r->at;
    if (!at->searched && at->state >= 0) {
        machine_rest(r->machine, MASK_EFFORT);
        forced_find(&at->forced, r->lexicon, r->machine, at->state);
    }
    at->searched = true;
    return at->forced.at < at->forced.list.n ? at->forced.list.id[at->forced.at] : -1;
}

/* A token has come: either the next forced one, or forced text has to be found again. */
static void take_forced(struct grammar_place *at, int32_t token)
{
    struct forced *f = &at->forced;
    if (f->at < f->list.n && f->list.id[f->at] == token)
        f->at++;
    else
        f->at = f->list.n;
    at->searched = f->at < f->list.n;
}

int grammar_run_mask(struct grammar_run *r, const int32_t *end, int n_end, uint32_t *mask, struct err *e)
{
    const struct lexicon *l = r->lexicon;
    int32_t forced = grammar_run_forced(r);
    if (forced >= 0) {
        memset(mask, 0, (size_t)l->n_words * sizeof *mask);
        mask[forced / 32] |= 1u << forced % 32;
        return check_walk(r, e);
    }
    tidy(r);
    machine_rest(r->machine, MASK_EFFORT);
    find_mask(r, mask);
    if (check_walk(r, e) != 0)
        return -1;
    for (int i = 0; i < n_end; i++)
        if (end[i] >= 0 && end[i] < l->n_tokens && r->machine->state[r->at->state].complete)
            mask[end[i] / 32] |= 1u << end[i] % 32;
    if (is_empty(mask, l->n_words))
        return ERR(e, ERR_INPUT, "no token of the vocabulary continues the requested form");
    return 0;
}

int grammar_run_take(struct grammar_run *r, int32_t token, struct err *e)
{
    if (r->machine->lossy)
        tidy(r);
    machine_rest(r->machine, MASK_EFFORT);
    r->at->state = lexicon_take(r->lexicon, r->machine, r->at->state, token);
    take_forced(r->at, token);
    if (check_walk(r, e) != 0)
        return -1;
    if (r->at->state < 0)
        return ERR(e, ERR_INTERNAL, "token %d is not one that its grammar allows", token);
    return 0;
}

bool grammar_run_may_end(const struct grammar_run *r)
{
    return r->at->state >= 0 && r->machine->state[r->at->state].complete;
}

bool grammar_run_ended(const struct grammar_run *r)
{
    const struct machine_state *s = &r->machine->state[r->at->state];
    return s->complete && s->n == 0;
}

void grammar_run_try(struct grammar_run *r)
{
    bool copied = forced_copy(&r->ahead.forced, &r->now.forced) == 0;
    r->ahead.state = copied ? r->now.state : MACHINE_DEAD;
    r->ahead.searched = r->now.searched;
    r->at = &r->ahead;
}

void grammar_run_return(struct grammar_run *r)
{
    r->ahead.state = MACHINE_DEAD;
    r->at = &r->now;
}

bool grammar_run_goes_on(struct grammar_run *r, int32_t token)
{
    struct err why = {0};
    int32_t forced = grammar_run_forced(r);
    return (forced < 0 || forced == token) && grammar_run_take(r, token, &why) == 0 && !grammar_run_ended(r);
}
