/* text/grammar/grammar.h - answers in a given form: the texts that the form allows, and the tokens that may come next.
 * A grammar is made once per request, on any thread, and is then constant; a run of it belongs to one sequence and one
 * thread. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "text/grammar/forced.h"
#include "text/grammar/walks.h"

#include <jansson.h>

struct grammar {
    struct graph graph;
    int start;
};

/* All of them refuse unsupported constructs by name, and forms that no text has. Call grammar_close in any case. */
int grammar_of_schema(struct grammar *g, const json_t *schema, struct err *e);
int grammar_of_regex(struct grammar *g, const char *regex, size_t bytes, struct err *e);
int grammar_of_choice(struct grammar *g, const json_t *texts, struct err *e);
int grammar_of_calls(struct grammar *g, const json_t *asked, struct err *e); /* calls.h */
/* Any JSON object. */
int grammar_of_object(struct grammar *g, struct err *e);
void grammar_close(struct grammar *g);

struct grammar_place { /* in a text of the form */
    int state;
    struct forced forced;
    bool searched; /* for what is forced in this state */
};

struct grammar_run {
    const struct lexicon *lexicon;   /* borrowed */
    struct walk *walk;               /* with all runs of equal grammars */
    struct machine *machine;         /* the walk's */
    struct grammar_place now, ahead; /* the state at the end of the text, and the one after attempted tokens */
    struct grammar_place *at;        /* which of the two the functions below use */
};

/* *r must not move until it is closed, which any thread may do. */
int grammar_run_open(struct grammar_run *r, const struct grammar *g, const struct lexicon *l, struct err *e);
void grammar_run_close(struct grammar_run *r);

/* The next token if the text is forced (text/grammar/forced.h): the mask then has only this token. -1: it is not
 * forced. */
int32_t grammar_run_forced(struct grammar_run *r);

/* The tokens that may come next, and the ids in end[0, n_end), which end a text, if it may end here. ERR_INPUT: no
 * token of the vocabulary continues the form; ERR_UNSUPPORTED: finding the tokens takes too long. */
int grammar_run_mask(struct grammar_run *r, const int32_t *end, int n_end, uint32_t *mask, struct err *e);

/* A token of the mask, other than an end-of-text id, has come. */
int grammar_run_take(struct grammar_run *r, int32_t token, struct err *e);

/* May the text end here? */
bool grammar_run_may_end(const struct grammar_run *r);
/* And is nothing allowed to follow? */
bool grammar_run_ended(const struct grammar_run *r);

/* Begin an attempt to continue the text: until grammar_run_return the functions above refer to the attempt, which
 * begins at the end of the text. Without memory an attempt cannot continue. */
void grammar_run_try(struct grammar_run *r);
void grammar_run_return(struct grammar_run *r);

/* Continue the attempt by any token. False: the token may not come there or would complete the text; the attempt is
 * over. */
bool grammar_run_goes_on(struct grammar_run *r, int32_t token);

#endif
