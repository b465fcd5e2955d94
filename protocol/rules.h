/* protocol/rules.h - a request's rules: how tokens are chosen, what ends the text, the number of choices; and the
 * reasons for an end. The scheduler obeys them. */
#ifndef PROTOCOL_RULES_H
#define PROTOCOL_RULES_H

#include "base/err.h"
#include "base/sampling.h"

#include <stdbool.h>

struct stop_strings;
struct form;

enum finish_reason {
    FINISH_NONE,
    FINISH_STOP,
    FINISH_LENGTH,
    FINISH_CANCELLED,
    FINISH_TIMEOUT,
    FINISH_ERROR,
    FINISH_REASONS /* their number */
};

#define REQUEST_MAX_STOP_IDS 64

/* How text is generated and ended. One for all requests of a run, or one for each. */
struct request_rules {
    struct sampling sampling; /* prompt_len is filled per request */
    int max_tokens;
    bool fills; /* max_tokens is what the context leaves: nobody has set it, or to -1 */
    bool ignore_eos;
    int n_stop_ids, stop_id[REQUEST_MAX_STOP_IDS]; /* end-of-text ids (unless ignored) and --stop-token-ids */
    struct stop_strings *stop;                     /* NULL: none; owned as the maker of the rules says */
    const struct form *form; /* the form of the text (text/grammar/form.h); NULL: any. Owned likewise */
    bool keep_stop, skip_special;
    bool parsed; /* into content, reasoning and calls: special tokens that mark these are part of the text even where
                  * others are skipped, a token that ends the text is not even where special tokens are */
    bool want_logprobs;
    bool want_prompt_logprobs; /* of every token of the prompt but the first, with sampling.n_prompt_top beside each */
};

/* "stop", "length", "cancelled", "timeout", "error" */
const char *finish_name(enum finish_reason f);

/* Makes these n ids end a sequence, and sampling.eos unless ignored; min_tokens forbids all of them until then. Both
 * fields must be set before. -1: too many; there is room for REQUEST_MAX_STOP_IDS - SAMPLING_MAX_EOS beside the eos
 * ids, and with min_tokens for SAMPLING_MAX_EOS ids in all. */
int request_rules_stop(struct request_rules *rules, const int32_t *id, int n);

#define BEAM_MAX (SAMPLING_MAX_TOP / 2)

enum early_stopping { EARLY_STOPPING_FALSE, EARLY_STOPPING_TRUE, EARLY_STOPPING_NEVER };

struct beam_rules {
    double length_penalty; /* a finished hypothesis scores (sum of log-probabilities) / (tokens of output) ** this; 1 */
    enum early_stopping early_stopping;
};

#define RULES_MAX_CHOICES 128 /* n and best_of */

struct search {
    int n;         /* choices wanted */
    int best_of;   /* sequences to sample with seed + i; the n with the best mean log-probability per token are
                  * returned; 0: n */
    int num_beams; /* 1: no beam search; else at least n */
    struct beam_rules beam;
};

/* Is the search possible with these rules? If not, *field names the field at fault. */
int search_check(const struct search *how, const struct request_rules *rules, const char **field, struct err *e);

#endif
