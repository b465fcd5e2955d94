/* gateway/api/inputs.h - requests of the form {"inputs", "parameters", "stream"} of DJLServing's LMI containers and
 * Text Generation Inference, and their answers with details. A style holds the differences between the two. */
#ifndef API_INPUTS_H
#define API_INPUTS_H

#include "gateway/api/openai.h"

struct inputs_call;

struct inputs_style {
    const char *logprob;     /* field name of a token's log-probability */
    int max_new_tokens;      /* default */
    bool values_sample;      /* a temperature, top_k or top_p in the request implies do_sample */
    bool has_special;        /* tokens have the field "special" */
    bool keeps_stop;         /* the answer includes the stop text */
    bool takes_grammar;      /* the parameter `grammar` is a form of the answer */
    const char *stream_type; /* content type; NULL: events */
    /* Sends a piece of a stream, which has a token and, if the last one, generated_text and details; stolen. */
    void (*piece)(struct exchange *x, json_t *piece);
    void (*fail)(struct exchange *x, const struct fault *f); /* reports a fault of a stream that has begun: the
                                                                piece, not the end */
};

/* The request, and the state of its stream; the exchange's state. */
struct inputs_call {
    const struct inputs_style *style;
    char model[EXCHANGE_TAIL_BYTES];
    json_t *prompts;                           /* [n] texts */
    bool as_list;                              /* the answer is a list */
    bool details, prefill, full_text, streams; /* full_text: the prompt's text precedes the answer's */
    bool has_grammar;                          /* the answer's form came as `grammar` */
    json_int_t n_top;                          /* number of likeliest tokens reported per token; 0: none */
    struct bytes text;                         /* of a stream, so far */
    json_int_t n_tokens;
    json_t *held; /* the last event's choice, until the end is there */
};

/* Makes the backend's message of the body; the caller decrefs it. NULL: *f says what is refused. */
json_t *inputs_translate(struct inputs_call *in, const json_t *body, struct fault *f);

/* Answers a body, which is decref'ed, in this style. model: "" is the only one. as_list: a single answer is a list of
 * one. */
void inputs_answer(struct exchange *x, json_t *body, const struct inputs_style *style, const char *model, bool as_list);

/* inputs_grammar.c: puts `grammar`, if there is one, into the parameters as the backend's form of an answer; gives the
 * backend's failure its name. */
void inputs_grammar(json_t *parameters, struct fault *f);
void inputs_rename(const struct inputs_call *in, struct fault *f);

/* inputs_details.c: parts of answers, new references. */
json_t *inputs_details(const struct inputs_call *in, const json_t *choice, const json_t *reply);
json_t *inputs_tokens(const struct inputs_call *in, const json_t *choice);
json_t *inputs_top_tokens(const struct inputs_call *in, const json_t *choice);

/* inputs_stream.c: sends an event, or the last reply, to the stream. */
void inputs_stream_reply(struct exchange *x, void *context, json_t *reply, bool last);

#endif
