/* protocol/rules.h - a request's rules: how tokens are chosen, what ends the text, the number of choices, and how it
 * ended. The scheduler obeys it. */
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

/* How text is made and ended. One for all requests of a run, or one for each. */
struct request_rules {
    struct sampling sampling; /* prompt_len is filled per request */
    int max_tokens;
    bool ignore_eos;
    int n_stop_ids, stop_id[REQUEST_MAX_STOP_IDS]; /* end-of-text ids (unless ignored) and --stop-token-ids */
    struct stop_strings *stop;                     /* NULL: none; whose it is, who made the rules says */
    const struct form *form; /* the form that the text has to have (text/grammar/form.h); NULL: any. Borrowed, too */
    bool keep_stop, skip_special;
    bool drop_end; /* a token that ends the text is not part of it, even where special tokens are */
    bool want_logprobs;
    bool want_prompt_logprobs; /* of every token of the prompt but the first, with sampling.n_prompt_top beside each */
};

/* "stop", "length", "cancelled", "timeout", "error" */
const char *finish_name(enum finish_reason f);

/* Have these n ids end a sequence, and sampling.eos unless ignored; min_tokens then forbids all of them. Both fields
 * are set before. -1: more than there is room for; beside the eos ids there is room for REQUEST_MAX_STOP_IDS -
 * SAMPLING_MAX_EOS, under min_tokens for what SAMPLING_MAX_EOS leaves. */
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
    int best_of;   /* sequences sampled: the n of them with the best mean log-probability a token are the choices; 0: n.
                      Sequence i samples with seed + i */
    int num_beams; /* 1: no beam search; else at least n */
    struct beam_rules beam;
};

/* Is this possible with these rules? If not, *field names the field that is at fault. */
int search_check(const struct search *how, const struct request_rules *rules, const char **field, struct err *e);

#endif
