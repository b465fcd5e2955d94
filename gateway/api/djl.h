/* gateway/api/djl.h - DJLServing's API: /predictions/{model}, by the form of the body. */
#ifndef API_DJL_H
#define API_DJL_H

#include "gateway/api/inputs.h"

extern const struct dialect djl_dialect;

void djl_predict(struct exchange *x);

/* Answer a prompt as plain text, and a body with "inputs" or "text"; both decref the body. model: "" is the only
 * one. */
void djl_answer_text(struct exchange *x, const char *model);
void djl_answer(struct exchange *x, json_t *body, const char *model);

/* Is the request's body plain text, by its Content-Type? */
bool djl_is_plain(const struct exchange *x);

/* djl_texts.c: {"text": [..], "seq_length": N}; decrefs the body. */
void djl_answer_texts(struct exchange *x, json_t *body, const char *model);

#endif
