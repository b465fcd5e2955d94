/* coordinator/schedule/request.c - see request.h. */
#include "coordinator/schedule/request.h"
#include "text/calls/calls.h"

#include <stdlib.h>
#include <string.h>

int request_append(struct request *r, const struct sampled *s, struct err *e)
{
    struct token_list *out = &r->output;
    if (out->n == out->capacity) {
        size_t capacity = 2 * out->capacity + 64;
        int32_t *id = realloc(out->id, capacity * sizeof *id);
        if (id == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory: %zu tokens", capacity);
        out->id = id;
        out->capacity = capacity;
        if (r->rules->want_logprobs) {
            struct sampled *logprobs = realloc(r->logprobs, capacity * sizeof *logprobs);
            if (logprobs == NULL)
                return ERR(e, ERR_MEMORY, "out of host memory: %zu log-probabilities", capacity);
            r->logprobs = logprobs;
        }
    }
    out->id[out->n] = s->token;
    if (r->rules->want_logprobs)
        r->logprobs[out->n] = *s;
    out->n++;
    r->logprob_sum += s->logprob;
    return 0;
}

static bool is_stop_id(const struct request_rules *rules, int32_t token)
{
    for (int i = 0; i < rules->n_stop_ids; i++)
        if (rules->stop_id[i] == token)
            return true;
    return false;
}

/* Add a piece of text; true when a stop string ends it there. */
static bool take_text(struct request *r, const char *piece, size_t bytes, bool may_stop, struct err *e)
{
    return stop_append(may_stop ? r->rules->stop : NULL, &r->stop, &r->text, &r->released, piece, bytes,
                       r->rules->keep_stop, e);
}

/* Computes the mask of the next token; a form that cannot continue ends the request. */
static void renew_mask(struct request *r)
{
    if (grammar_run_mask(r->form, r->rules->stop_id, r->rules->n_stop_ids, r->mask, &r->error) != 0)
        r->finish = FINISH_ERROR;
}

int request_begin_form(struct request *r, const struct lexicon *l, int n_words, struct err *e)
{
    if (l->n_words != n_words)
        return ERR(e, ERR_INTERNAL, "masks of %d words, expected %d", l->n_words, n_words);
    r->mask = err_calloc(e, (size_t)n_words, sizeof *r->mask, "mask of tokens");
    r->form = r->mask != NULL ? err_calloc(e, 1, sizeof *r->form, "form of an answer") : NULL;
    if (r->form == NULL || grammar_run_open(r->form, &r->rules->form->grammar, l, e) != 0)
        return -1;
    return grammar_run_mask(r->form, r->rules->stop_id, r->rules->n_stop_ids, r->mask, e);
}

/* Advances the form by a token that is not an end. True: the form is then complete. */
static bool complete_form(struct request *r, int32_t token)
{
    if (r->form == NULL)
        return false;
    if (grammar_run_take(r->form, token, &r->error) != 0) {
        r->finish = FINISH_ERROR;
        return false;
    }
    return grammar_run_ended(r->form);
}

static int open_detokenizer(struct request *r, const struct tokenizer *t, struct err *e)
{
    if (r->detokenizer != NULL)
        return 0;
    if (detokenizer_open(&r->detokenizer, t, r->rules->skip_special, e) != 0)
        return -1;
    if (r->rules->parsed)
        detokenizer_keep(r->detokenizer, calls_marks());
    return 0;
}

/* One token, with its text. */
static int take_token(struct request *r, const struct tokenizer *t, const struct sampled *s, struct err *e)
{
    const struct request_rules *rules = r->rules;
    const char *piece = NULL;
    size_t bytes = 0;
    if (open_detokenizer(r, t, e) != 0)
        return -1;
    if (request_append(r, s, e) != 0)
        return -1;
    bool may_stop = (int)r->output.n >= rules->sampling.min_tokens;
    bool stop_id = may_stop && is_stop_id(rules, s->token);
    bool complete = !stop_id && complete_form(r, s->token);
    bool last = stop_id || complete || (int)r->output.n >= rules->max_tokens;
    /* A token that ends the text is not part of it, unless special tokens are shown. */
    if ((!stop_id || !(rules->skip_special || rules->parsed)) &&
        detokenizer_push(r->detokenizer, s->token, &piece, &bytes, e) != 0)
        return -1;
    bool stopped = take_text(r, piece, bytes, may_stop, e);
    if (!stopped && last && e->code == ERR_NONE) {
        if (detokenizer_finish(r->detokenizer, &piece, &bytes, e) != 0)
            return -1;
        stopped = take_text(r, piece, bytes, may_stop, e);
        r->released = r->text.bytes;
    }
    if (e->code != ERR_NONE)
        return -1;
    if (r->finish != FINISH_NONE)
        return 0; /* the form's error */
    if (stop_id || stopped || complete)
        r->finish = FINISH_STOP;
    else if (last)
        r->finish = FINISH_LENGTH;
    return 0;
}

/* Is the next token forced, so that it need not be sampled? */
static bool jumps(struct request *r, struct sampled *s)
{
    if (r->finish != FINISH_NONE || r->form == NULL || r->rules->want_logprobs || r->ranked)
        return false;
    s->token = grammar_run_forced(r->form);
    return s->token >= 0;
}

int request_take(struct request *r, const struct tokenizer *t, const struct sampled *s, bool more, struct err *e)
{
    struct sampled forced = {.slot = s->slot};
    if (t == NULL) {
        r->finish = (int)r->output.n + 1 >= r->rules->max_tokens ? FINISH_LENGTH : FINISH_NONE;
        return request_append(r, s, e);
    }
    if (take_token(r, t, s, e) != 0)
        return -1;
    if (more)
        return 0;
    while (jumps(r, &forced))
        if (take_token(r, t, &forced, e) != 0)
            return -1;
    if (r->finish == FINISH_NONE && r->form != NULL)
        renew_mask(r);
    return 0;
}

void request_close(struct request *r)
{
    token_list_free(&r->prompt);
    token_list_free(&r->output);
    free(r->prompt_text);
    free(r->logprobs);
    free(r->prompt_logprobs);
    text_free(&r->text);
    detokenizer_close(&r->detokenizer);
    for (int kind = 0; kind < KV_KINDS; kind++)
        free(r->held[kind].block);
    if (r->form != NULL)
        grammar_run_close(r->form);
    free(r->form);
    free(r->mask);
    guesses_close(&r->guesses);
    r->form = NULL;
    r->mask = NULL;
    r->prompt_text = NULL;
    r->logprobs = NULL;
    r->prompt_logprobs = NULL;
    memset(r->held, 0, sizeof r->held);
}
