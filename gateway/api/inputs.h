/* gateway/api/inputs.h - requests of the form {"inputs", "parameters", "stream"}, as DJLServing's LMI containers and
 * Text Generation Inference have them, and their answers with details. A style holds the differences between the
 * two. */
#ifndef API_INPUTS_H
#define API_INPUTS_H

#include "gateway/api/openai.h"

struct inputs_call;

struct inputs_style {
    const char *logprob;     /* the name of a token's log-probability */
    int max_new_tokens;      /* unless the request says */
    bool values_sample;      /* a temperature, top_k or top_p of its own samples, do_sample or not */
    bool has_special;        /* tokens say whether they are special */
    bool keeps_stop;         /* a stop text is part of the answer */
    const char *stream_type; /* of the content; NULL: events */
    /* A piece of a stream, which has a token and, the last one, generated_text and details; stolen. */
    void (*piece)(struct exchange *x, json_t *piece);
    void (*fail)(struct exchange *x, const struct fault *f); /* of a stream that has begun: the piece, not the end */
};

/* The request, and the state of its stream; the exchange's state. */
struct inputs_call {
    const struct inputs_style *style;
    char model[EXCHANGE_TAIL_BYTES];
    json_t *prompts;                           /* [n] texts */
    bool as_list;                              /* the answer is a list */
    bool details, prefill, full_text, streams; /* full_text: the prompt's text goes before the answer's */
    json_int_t n_top;                          /* likeliest tokens beside each; 0: not wanted */
    struct bytes text;                         /* of a stream, so far */
    json_int_t n_tokens;
    json_t *held; /* the last event's choice, until the end is there */
};

/* Makes the backend's message of the body; the caller decrefs it. NULL: *f says what is refused. */
json_t *inputs_translate(struct inputs_call *in, const json_t *body, struct fault *f);

/* Answer a body, which is decref'ed, as the style has it. model: "" is the only one. as_list: an answer that is alone
 * is a list of one. */
void inputs_answer(struct exchange *x, json_t *body, const struct inputs_style *style, const char *model, bool as_list);

/* inputs_details.c: parts of answers, new references. */
json_t *inputs_details(const struct inputs_call *in, const json_t *choice, const json_t *reply);
json_t *inputs_tokens(const struct inputs_call *in, const json_t *choice);
json_t *inputs_top_tokens(const struct inputs_call *in, const json_t *choice);

/* inputs_stream.c: what an event, or the last reply, gives to the stream. */
void inputs_stream_reply(struct exchange *x, void *context, json_t *reply, bool last);

#endif
