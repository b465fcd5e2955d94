/* text/grammar/machine_describe.h - the bytes, and the characters of a string, that a state of a machine allows. For
 * machine.c only. */
#ifndef GRAMMAR_MACHINE_DESCRIBE_H
#define GRAMMAR_MACHINE_DESCRIBE_H

#include "text/grammar/machine.h"

/* Fill live, free_chars, only_free and own_end of a state whose places are known, zeroed before. */
void machine_describe(const struct machine *m, struct machine_state *s);

#endif
