/* coordinator/schedule/lengths.h - the expected lengths of answers, by those that have ended. Answers with a limit of
 * their own take a share of it, which depends on its size: whoever sets 4 wants something else than whoever sets 4,000.
 * Those that may fill the context, for which nobody has set one, have a length in common. Recent answers count most. */
#ifndef SCHEDULE_LENGTHS_H
#define SCHEDULE_LENGTHS_H

#include <stdbool.h>

#define LENGTHS_SIZES 32 /* max_tokens from 2^i to 2^(i+1) - 1 */

struct lengths {
    struct length_mean {
        double sum, weight;
    } share[LENGTHS_SIZES], open; /* of max_tokens; in tokens */
};

/* Until answers have ended: the whole of max_tokens, and some hundred tokens where the context is the limit. */
void lengths_begin(struct lengths *l);

/* An answer has ended with n tokens. fills: nobody has set max_tokens (struct request_rules). */
void lengths_note(struct lengths *l, int n, int max_tokens, bool fills);

/* The number of tokens that an answer which has n is expected to get yet: at least 1 before the last, at most
 * max_tokens - n. Answers are expected to have no more than 4,096 tokens; those that are longer than expected will
 * probably grow by another quarter. */
int lengths_left(const struct lengths *l, int n, int max_tokens, bool fills);

#endif
