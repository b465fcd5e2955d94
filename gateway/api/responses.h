/* gateway/api/responses.h - OpenAI's stateless /v1/responses: nothing is stored, no response continues an earlier
 * one. */
#ifndef API_RESPONSES_H
#define API_RESPONSES_H

#include "gateway/api/openai.h"

void responses_create(struct exchange *x);

/* A response that is being made; the exchange's state. */
struct response {
    struct openai_request asked;
    char name[POOL_NAME_BYTES + 1], id[POOL_NAME_BYTES + 16];
    json_t *request; /* the request as it came */
    bool has_begun;  /* the stream's first events are sent */
    int sequence;    /* of the next event */

    char item[POOL_NAME_BYTES + 32]; /* the present item of the output */
    int n_items;                     /* items named so far */
    enum response_kind { RESPONSE_NOTHING, RESPONSE_MESSAGE, RESPONSE_THOUGHT, RESPONSE_CALL } kind; /* of a stream */
    struct bytes text;                                                                               /* of the item */
    json_t *logprobs;                                                                                /* of the text */
    json_t *call;   /* the call whose arguments the text is */
    json_t *output; /* of a stream: the complete items */
};

/* responses_request.c: translates a request's body to a chat completion's, which the caller decrefs. NULL: *f says what
 * is refused. */
json_t *responses_translate(const json_t *body, struct fault *f);

/* The parts of a response, new references. status: "completed", "in_progress", ... */
json_t *response_part(const char *text, size_t bytes, json_t *logprobs);
json_t *response_item(const struct response *r, const char *status, json_t *part);
/* output: a list, which is stolen; NULL: empty. */
json_t *response_object(const struct exchange *x, const struct response *r, const char *status, json_t *output);
/* responses_items.c. text NULL: none yet. call: as a message has it, with "id" and "function": {"name"}. */
json_t *response_thought(const struct response *r, const char *status, const char *text, size_t bytes);
json_t *response_call(const struct response *r, const char *status, const json_t *call, const char *arguments,
                      size_t bytes);
/* The next item's name: from its kind and the response's name. */
void response_name_item(struct response *r, const char *prefix);
/* All items of an answer in one piece. */
json_t *response_output(struct response *r, const json_t *choice, json_t *logprobs);

/* The final object, with status "completed" or "incomplete" and the reason, and usage. output is stolen. */
const char *response_status(const json_t *choice);
json_t *response_ended(const struct exchange *x, const struct response *r, const json_t *reply, json_t *output);

/* The entries of a chat's `logprobs.content`, for a choice or an event. */
json_t *response_logprobs(const struct response *r, const json_t *choice);

/* Gives a failure of the backend, or of the chat, the names of this API's fields; the reply's failure with them. */
void response_rename(struct fault *f);
struct fault response_fault(const json_t *reply);

/* responses_stream.c: sends an event, or the last reply, to the stream. */
void responses_stream_reply(struct exchange *x, void *context, json_t *reply, bool last);

#endif
