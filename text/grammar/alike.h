/* text/grammar/alike.h - characters that a machine treats alike, since they lead from one state to the same next state,
 * and states in which any plain text may come. Both allow many tokens to be masked at once. */
#ifndef GRAMMAR_ALIKE_H
#define GRAMMAR_ALIKE_H

#include "text/grammar/machine.h"

/* The largest set of ASCII characters that lead from the state to the same next one, `to`; wide: all other characters
 * do, too. Empty if they are few. Found once for a state; valid until the machine makes another. */
const struct machine_alike *alike_find(struct machine *m, int state);

/* The state to which all characters of the set lead; MACHINE_DEAD: none may come; MACHINE_UNKNOWN: they lead to
 * different states. */
int alike_next(struct machine *m, int state, const uint64_t ascii[2], bool wide);

/* Whether any number of plain characters (lexicon.h) may come in the state; then it has free_chars without limit. */
bool alike_free(struct machine *m, int state);

#endif
