/* gateway/api/openai.h - the OpenAI API: /v1/models, /v1/completions, /v1/chat/completions; and the functions that
 * other APIs for chats and completions share with it. */
#ifndef API_OPENAI_H
#define API_OPENAI_H

#include "gateway/exchange/exchange.h"

extern const struct dialect openai_dialect;

void openai_models(struct exchange *x);
void openai_model(struct exchange *x);
void openai_completions(struct exchange *x);
void openai_chat(struct exchange *x);

/* Answer the body of one of the two, which is decref'ed. */
void openai_answer(struct exchange *x, json_t *body, bool chat);

/* Options of a request for text that are not in the message to the backend. */
struct openai_request {
    bool chat, stream, include_usage, echo;
    bool usage_so_far;               /* every chunk of the stream has "usage" */
    bool ids_as_tokens;              /* "token_id:5" instead of texts */
    bool ids;                        /* of tokens, beside the texts */
    char model[EXCHANGE_TAIL_BYTES]; /* for answers */
};

/* Makes the backend's message from a request's body (docs/gateway.md); the caller decrefs it. Fields without a meaning
 * here are dropped. NULL: *f says what is refused. */
json_t *openai_translate(struct exchange *x, const json_t *body, struct openai_request *r, struct fault *f);

/* The reply's choices and usage in OpenAI's form. New references; NULL: out of memory. */
json_t *openai_usage(const json_t *reply);
json_t *openai_logprobs(const json_t *choice, const struct openai_request *r, int64_t *offset);

/* The default model: the only one served; "" when there are none or several. */
const char *openai_only_model(const struct exchange *x);

/* Is there a backend that takes requests for this model? */
bool openai_serves(const struct exchange *x, const char *model);

#endif
