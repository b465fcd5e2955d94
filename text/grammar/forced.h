/* text/grammar/forced.h - text that a grammar forces, cut into tokens. Text is forced as long as only one byte may come
 * and the text may not end. It is cut as the tokenizer cuts it; where that gives other bytes (a space in front, half a
 * character), it is cut into the longest matching tokens. The model might write a token that reaches beyond the forced
 * text, so no token ends after the place where the first such token could begin. */
#ifndef GRAMMAR_FORCED_H
#define GRAMMAR_FORCED_H

#include "base/token_list.h"
#include "text/grammar/lexicon.h"

struct forced { /* zeroed = empty */
    struct token_list list;
    size_t at; /* list.id[at, list.n) are still to be fed */
};

/* The tokens of the text that is forced in a state; none if no text is forced, if finding it takes too many steps
 * (machine_tired), or without memory. */
void forced_find(struct forced *f, const struct lexicon *l, struct machine *m, int state);
/* Copy the tokens of another one that are still to come; -1: no memory. */
int forced_copy(struct forced *f, const struct forced *from);

void forced_close(struct forced *f);

#endif
