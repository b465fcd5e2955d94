/* base/prompt_scores.h - log-probabilities of a prompt in the form of vLLM's HTTP API. */
#ifndef BASE_PROMPT_SCORES_H
#define BASE_PROMPT_SCORES_H

#include "base/json.h"

/* [null, {"ID": {"logprob", "rank", "decoded_token"}, ..}, ..] of "prompt_logprobs" in docs/protocol.md: the token
 * first, then the likeliest. "rank" is null for a token that is not among these. NULL: out of memory. */
json_t *prompt_scores(const json_t *entries);

#endif
