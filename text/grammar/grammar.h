/* text/grammar/grammar.h - answers in a given form: what a text may consist of, and which tokens may come next.
 *
 * A grammar is made once for a request, on any thread, and then constant; a run of it belongs to one sequence and one
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

/* All of them refuse by name what they do not support, and forms that no text has. grammar_close in any case. */
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
    struct grammar_place now, ahead; /* the state at the text's end, and the one behind tokens that are tried */
    struct grammar_place *at;        /* the one of the two that the functions below use */
};

/* *r stays where it is until it is closed, by any thread. */
int grammar_run_open(struct grammar_run *r, const struct grammar *g, const struct lexicon *l, struct err *e);
void grammar_run_close(struct grammar_run *r);

/* The next token, if the text that has to follow leaves no choice (text/grammar/forced.h): the mask then has this token
 * alone. -1: there is a choice. */
int32_t grammar_run_forced(struct grammar_run *r);

/* The tokens that may come next, and the ids in end[0, n_end), which end a text, if it may end here. ERR_INPUT: no
 * token of the vocabulary leads on; ERR_UNSUPPORTED: finding out takes too long. */
int grammar_run_mask(struct grammar_run *r, const int32_t *end, int n_end, uint32_t *mask, struct err *e);

/* A token of the mask, which ends nothing, has come. */
int grammar_run_take(struct grammar_run *r, int32_t token, struct err *e);

/* The text is complete. */
bool grammar_run_may_end(const struct grammar_run *r);
/* And nothing can follow. */
bool grammar_run_ended(const struct grammar_run *r);

/* Try how the text might go on: until grammar_run_return the functions above are about an attempt that begins where the
 * text ends. Without memory for an attempt it cannot go on. */
void grammar_run_try(struct grammar_run *r);
void grammar_run_return(struct grammar_run *r);

/* The attempt goes on by any token. False: it may not come there, or the text would be complete with it; the attempt is
 * over. */
bool grammar_run_goes_on(struct grammar_run *r, int32_t token);

#endif
