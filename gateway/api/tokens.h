/* gateway/api/tokens.h - /tokenize and /detokenize, compatible with vLLM's. */
#ifndef API_TOKENS_H
#define API_TOKENS_H

#include "gateway/exchange/exchange.h"

void tokens_tokenize(struct exchange *x);
void tokens_detokenize(struct exchange *x);

#endif
