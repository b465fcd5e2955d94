/* protocol/reply_parts.h - building blocks of replies; for coordinator/reply*.c, batch/result.c and
 * server/access_log.c. Values may be NULL if memory is exhausted; *good then becomes false, and reply_dump returns
 * NULL. */
#ifndef PROTOCOL_REPLY_PARTS_H
#define PROTOCOL_REPLY_PARTS_H

#include "base/json.h"
#include "protocol/reply.h"

/* Both take over the value. */
void reply_put(json_t *object, const char *key, json_t *value, bool *good);
void reply_append(json_t *list, json_t *value, bool *good);

/* The JSON text, malloc'ed, *bytes long. Frees root. */
char *reply_dump(json_t *root, bool good, size_t *bytes);

/* Bytes that are not UTF-8 become U+FFFD. text NULL: "". */
json_t *reply_string(const char *text, size_t bytes);
json_t *reply_text(const char *text);
json_t *reply_ids(const int32_t *id, size_t n, bool *good);

/* "stop", or of a choice that stopped to call tools "tool_calls", ... */
json_t *reply_finish(const struct reply_choice *c);

/* "error" of a choice that failed: {"code", "message"}. */
void reply_put_failure(json_t *object, const struct reply_choice *c, bool *good);

/* The decoded text of a token alone; t NULL: null. */
json_t *reply_token_text(const struct tokenizer *t, int32_t id);

/* [{"token_id", "token", "bytes", "logprob", "top_logprobs": [..]}], "bytes" if they are not the token's, after a null
 * for a token that has none. */
json_t *reply_logprobs(const struct tokenizer *t, const struct sampled *s, size_t n, int n_top, bool first_is_null,
                       bool *good);
/* The prompt's, after a null for its first token; it has prompt_logprobs. */
json_t *reply_prompt_logprobs(const struct tokenizer *t, const struct reply_choice *c, bool *good);
/* "prompt_token_ids" and "prompt_logprobs", if they are wanted. */
void reply_put_prompt(json_t *object, const struct reply *r, const struct reply_choice *c, bool *good);

void reply_put_usage(json_t *root, const struct reply *r, bool *good);
/* "completion_tokens_details", if a prediction was given. */
void reply_put_predicted(json_t *usage, const struct reply *r, bool *good);
/* A time as JSON, with three digits after the point. */
json_t *reply_milliseconds(double x);
void reply_put_timing(json_t *root, const struct reply_timing *t, bool *good);
/* "metrics", if drafts are made. */
void reply_put_drafts(json_t *root, const struct reply_drafts *d, bool *good);

/* reply_openai.c: the body of a completion (chat: a chat completion) as the OpenAI API has it; id: "cmpl-..". With
 * "timing", "metrics" and "seed" beside it. */
json_t *reply_openai_body(const struct reply *r, bool chat, const char *id, int64_t created, bool *good);

#endif
