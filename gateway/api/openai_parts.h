/* gateway/api/openai_parts.h - internal interface of the OpenAI API's files. */
#ifndef API_OPENAI_PARTS_H
#define API_OPENAI_PARTS_H

#include "gateway/api/openai.h"

struct openai_choice {
    bool begun, ended;
    int64_t offset; /* of the next token's text, in characters */
};

/* A request for text that is being answered; the exchange's state. */
struct openai_answer {
    struct openai_request asked;
    char id[POOL_NAME_BYTES + 16];
    char fingerprint[64];         /* "system_fingerprint" */
    struct openai_choice *choice; /* [n_choices], as far as they have appeared */
    size_t n_choices;
    int64_t prompt_tokens, completion_tokens; /* of a stream, so far */
};

/* Asks the backend, and answers in the request's form. message is decref'ed. */
void openai_generate(struct exchange *x, const struct openai_request *r, json_t *message);

/* openai_messages.c: a chat's messages without the answers' extra members that clients send back; a new reference. */
json_t *openai_messages(const json_t *messages);

/* openai_stream.c: sends an event, or the last reply, to the stream. */
void openai_stream_reply(struct exchange *x, void *context, json_t *reply, bool last);

#endif
