/* text/grammar/forced.h - text that a grammar leaves no choice about, cut into tokens.
 *
 * Text is forced as long as a single byte can come and the text cannot end. It is cut as the tokenizer cuts it by
 * itself; where that gives other bytes (a space in front, half a character) into the longest tokens. A token that
 * reaches beyond the forced text may be what the model would write there, so no token ends behind the place where the
 * first such one could begin. */
#ifndef GRAMMAR_FORCED_H
#define GRAMMAR_FORCED_H

#include "base/token_list.h"
#include "text/grammar/lexicon.h"

struct forced { /* zeroed = empty */
    struct token_list list;
    size_t at; /* list.id[at, list.n) are still to come */
};

/* The tokens of the text that is forced in a state; none if no text is, if finding it takes too much effort
 * (machine_tired), or without memory for them. */
void forced_find(struct forced *f, const struct lexicon *l, struct machine *m, int state);
/* Copy the tokens of another one that are still to come; -1: no memory. */
int forced_copy(struct forced *f, const struct forced *from);

void forced_close(struct forced *f);

#endif
