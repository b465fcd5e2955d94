/* commands/bench/traffic.h - requests of random tokens, all of one shape and queued at once, for the scheduler that
 * serves real requests; `bench --throughput` measures them. Text is generated if there is a tokenizer. There is no
 * prefix cache, and the same requests are queued again and again, unless prompts share their first tokens: then there
 * is a cache, and the prompts are new every time. The caller passes the times, as to the scheduler. Rank 0 only. */
#ifndef BENCH_TRAFFIC_H
#define BENCH_TRAFFIC_H

#include "commands/bench/waits.h"
#include "coordinator/schedule/scheduler.h"

/* Drafts with a simulated outcome: they are verified like others, and then each is accepted with this probability if
 * the preceding one was. */
struct played_drafts {
    int most;       /* of a sequence and step; 0: none are made */
    bool rest;      /* fewer of a draft model's, or none, where they do not pay off */
    bool come_true; /* no simulation: a draft model's drafts count by their real outcome */
    double acceptance;
    uint64_t random;
    struct sampled *sampled; /* of a step, as reported */
};

struct traffic {
    struct played_drafts drafts; /* most, rest, come_true and acceptance are set before traffic_open */
    int n_shared;    /* length of the prompts' common prefix, below n_input; 0: none. Set before traffic_open */
    double max_step; /* s, of struct scheduler_setup; set before traffic_open */
    struct blocks_source source[KV_KINDS]; /* of KV blocks, of struct scheduler_setup; set before traffic_open */
    int n_requests, n_input, vocab;
    struct request_rules rules;
    struct tokenizer *tokenizer; /* NULL: no text is made */
    struct lexicon_keeper lexicon;
    struct form *form; /* NULL: any text */
    int32_t *id;       /* [n_ids]: the prompt of request i is n_input ids from i * stride on */
    size_t n_ids, stride;
    uint64_t n_queued;       /* times that all of them were queued */
    struct request *request; /* [n_requests] */
    int n_open;              /* that the scheduler still holds */
    double *newest;          /* [n_requests] time of its last token; -1: none yet */
    struct waits waits;      /* since they were last zeroed */
    struct scheduler scheduler;
};

/* Before traffic_open: text is made with the tokenizer in a folder and, unless it is NULL, has the form of the JSON
 * schema in a file. *t is zeroed. */
int traffic_speak(struct traffic *t, const char *folder, const char *schema, int vocab, struct err *e);

/* Requests of n_input tokens in and n_output out, at most l->max_seqs of them at once. ERR_MEMORY if the KV cache does
 * not hold even one. *t is zeroed, or from traffic_speak, but for the drafts. */
int traffic_open(struct traffic *t, int n_requests, int n_input, int n_output, const struct limits *l, int vocab,
                 struct err *e);
void traffic_close(struct traffic *t);

/* Makes the tokens for the next traffic_queue, which may take milliseconds: call it outside measurements. */
void traffic_renew(struct traffic *t);

/* Queues all requests once more. Nothing may be running. */
int traffic_queue(struct traffic *t, double now, struct err *e);

/* Is any request waiting or running, or sampled by a step in flight? */
bool traffic_busy(const struct traffic *t);

/* The next step, which may be empty while results are outstanding; and a step's results. */
void traffic_plan(struct traffic *t, struct plan *p, double now);
void traffic_masks(struct traffic *t, struct plan *p);
/* ERR_INPUT: a grammar was complete before all tokens of its request. */
int traffic_accept(struct traffic *t, const struct step_result *result, double now, struct err *e);

/* The drafts of all requests so far; none, if it is not open. */
void traffic_drafts(const struct traffic *t, struct draft_counts *c);

/* The share of all prompts' tokens that came from the prefix cache so far. */
double traffic_cached(const struct traffic *t);

#endif
