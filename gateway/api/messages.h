/* gateway/api/messages.h - Anthropic's API: /v1/messages and /v1/messages/count_tokens, translated to chats for the
 * backend. */
#ifndef API_MESSAGES_H
#define API_MESSAGES_H

#include "gateway/api/openai.h"

extern const struct dialect messages_dialect;

void messages_create(struct exchange *x);
void messages_count(struct exchange *x);
/* messages_models.c: /v1/models and /v1/models/{id} in this API's form. */
void messages_models(struct exchange *x);
void messages_model(struct exchange *x);

/* messages_request.c: translates a request's body to a chat completion's, which the caller decrefs. NULL: *f says what
 * is refused. needs_limit: max_tokens must be there. */
json_t *messages_translate(const json_t *body, bool needs_limit, struct fault *f);

#endif
