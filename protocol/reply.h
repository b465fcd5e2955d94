/* protocol/reply.h - replies and stream events as JSON text, from plain structs. docs/protocol.md shows each.
 *
 * Every function returns malloc'ed, NUL-terminated UTF-8, *bytes long without that NUL, which the caller frees; NULL
 * when the host is out of memory. Invalid UTF-8, which should not occur, is written as U+FFFD. request_id may be NULL
 * everywhere and is then omitted. */
#ifndef PROTOCOL_REPLY_H
#define PROTOCOL_REPLY_H

#include "protocol/protocol.h"

struct reply_choice {
    int index;        /* prompt x n + candidate */
    const char *text; /* final text that has not been sent yet, or all; with echo after the prompt's text */
    size_t bytes;
    const char *before; /* [n_before] in an event: escaped text before `text`, from reply_characters; NULL: none */
    size_t n_before;
    const int32_t *token_id; /* [n_tokens] */
    size_t n_tokens;
    enum finish_reason finish;             /* FINISH_NONE: null */
    const struct err *error;               /* FINISH_ERROR: the reason; NULL: unknown */
    bool whole;                            /* FINISH_STOP: its form was complete, no text or token ended it */
    const char *stop_text;                 /* FINISH_STOP: the text that ended it; NULL: the last token did */
    const struct sampled *logprobs;        /* [n_tokens]; NULL: not requested */
    int n_top;                             /* of each */
    const int32_t *prompt_id;              /* [n_prompt] */
    const struct sampled *prompt_logprobs; /* [n_prompt - 1], of tokens 1, 2, ..; NULL: not requested */
    size_t n_prompt;
    int n_prompt_top;    /* of each */
    struct json_t *said; /* "message", in an event "delta": the parsed text; NULL: not parsed */
    bool calls;          /* the choice calls tools */
    bool has_score;      /* beam search */
    double score;
};

struct reply_usage {
    int64_t prompt_tokens, cached_tokens, completion_tokens; /* cached: of the prompt's, found in the prefix cache */
};

struct reply_drafts { /* of all sequences */
    int n_places;     /* limit of drafts per sequence and step; 0: no drafts, and no report */
    int64_t n_steps,
        n_tokens; /* number of times that a step verified drafts of a sequence, and the number of these drafts */
    const int64_t *n_accepted; /* [n_places] accepted drafts by position */
};

struct reply_timing { /* milliseconds: waiting, prompt, tokens after the first, from arrival to this reply */
    double queue, prefill, decode, total;
};

struct reply {
    const char *request_id, *model;
    const struct tokenizer *tokenizer; /* texts of tokens in logprobs */
    int n_choices;
    const struct reply_choice *choice;  /* [n_choices] */
    const struct reply_usage *usage;    /* NULL: left out */
    const struct reply_timing *timing;  /* NULL: left out */
    const struct reply_drafts *drafts;  /* NULL: left out */
    const struct protocol_error *error; /* NULL or code 0: all is well */
    uint64_t seed;                      /* that was used */
    int64_t prompt_tokens;              /* of all prompts, for a stream's first event; 0: left out */
    bool predicted;                     /* a prediction was given: usage reports accepted and rejected drafts */
    bool echo;                          /* texts begin with the prompt's */
    bool ids;                           /* the prompt's token ids are wanted, and those of the output everywhere */
};

/* The only reply to a generate without streaming. With an error it has the choices so far beside it. */
char *reply_generate(const struct reply *r, size_t *bytes);
/* Events of a stream, counted by seq from 0: first those with tokens, then the final one, without text. */
char *reply_tokens(const struct reply *r, uint64_t seq, size_t *bytes); /* of one choice */
char *reply_final(const struct reply *r, uint64_t seq, size_t *bytes);

/* A text escaped as in a JSON string, without the quotes. */
char *reply_characters(const char *text, size_t text_bytes, size_t *bytes);

/* The reply to a message that was refused before it ran, with any op. */
char *reply_error(const char *request_id, const struct protocol_error *error, size_t *bytes);

char *reply_cancel(const char *request_id, size_t *bytes);

struct reply_health {
    const char *state; /* "loading", "ready", "draining" */
    const char *model;
    int ranks, n_replicas;
    int64_t running, waiting; /* requests */
    double kv_usage;          /* share of KV blocks in use, 0..1 */
    double uptime_s;
};
char *reply_health(const char *request_id, const struct reply_health *h, size_t *bytes);

/* text: Prometheus exposition format. */
char *reply_metrics(const char *request_id, const char *text, size_t text_bytes, size_t *bytes);

struct reply_model {
    const char *name, *family, *dtype;
    int ranks, n_replicas, vocab, max_model_len;
    const char *chat_template; /* its name; NULL: unknown */
    const char *state;         /* "ready", ...: see struct deploy */
    bool pinned;
    int n_ready;        /* sets of ranks on which it is ready; negative: there is one model */
    int users, waiters; /* its running requests, and those that wait for it */
    int64_t bytes;      /* memory that it takes; 0: not known yet; negative: not reported, since there is one model */
    bool has_freed;
    int64_t free_before, freed; /* free bytes before its last unloading, and their growth, as the device reports them */
    double idle_s;              /* since its last use; negative: it has not been used */
    const char *why;            /* the reason why it could not be loaded; NULL: none */
    const char *variant;        /* how stored numbers differ from the checkpoint's; NULL: not at all */
};
char *reply_models(const char *request_id, const struct reply_model *m, int n, int64_t max_message_bytes,
                   size_t *bytes);
/* The reply to load, unload and pin: the model in its present state. */
char *reply_model(const char *request_id, enum protocol_op op, const struct reply_model *m, size_t *bytes);

/* strings: with the tokens' texts as the vocabulary has them. */
char *reply_tokenize(const char *request_id, const int32_t *id, size_t n, const struct tokenizer *t, bool strings,
                     int max_model_len, size_t *bytes);
char *reply_detokenize(const char *request_id, const char *text, size_t text_bytes, size_t *bytes);

/* drain, shutdown: accepted. state: "draining", "stopping" */
char *reply_state(const char *request_id, enum protocol_op op, const char *state, size_t *bytes);

#endif
