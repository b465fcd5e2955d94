/* commands/bench/traffic.h - requests of random tokens, all of one shape and queued at once, for the scheduler that
 * serves real requests; `bench --throughput` measures them. Text is made if there is a tokenizer. Nothing comes from a
 * prefix cache, and the same requests are queued again and again, unless prompts share their first tokens: then there
 * is one, and every time the prompts are new. Times are the caller's, as the scheduler's are. Rank 0 only. */
#ifndef BENCH_TRAFFIC_H
#define BENCH_TRAFFIC_H

#include "commands/bench/waits.h"
#include "coordinator/schedule/scheduler.h"

/* Drafts whose outcome is played: they are verified like others, and then each counts with this probability if the one
 * before it did. */
struct played_drafts {
    int most;       /* of a sequence and step; 0: none are made */
    bool rest;      /* fewer of a draft model's, or none, where they do not pay */
    bool come_true; /* nothing is played: a draft model's drafts count as they are */
    double acceptance;
    uint64_t random;
    struct sampled *sampled; /* of a step, as it is told */
};

struct traffic {
    struct played_drafts drafts; /* most, rest, come_true and acceptance are set before traffic_open */
    int n_shared;    /* first tokens that all prompts have in common, below n_input; 0: none. Set before traffic_open */
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
    int n_open;              /* that the scheduler has not let go of */
    double *newest;          /* [n_requests] when a token of it came last; -1: none has */
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

/* Tokens for the next traffic_queue, which may take milliseconds: nothing is measured meanwhile. */
void traffic_renew(struct traffic *t);

/* All of them into the queue, once more. Nothing may be running. */
int traffic_queue(struct traffic *t, double now, struct err *e);

/* Anything waiting or running, or sampled by a step that is under way? */
bool traffic_busy(const struct traffic *t);

/* The next step, which may be empty while results are outstanding; and a step's results. */
void traffic_plan(struct traffic *t, struct plan *p, double now);
void traffic_masks(struct traffic *t, struct plan *p);
/* ERR_INPUT: a form was complete before all tokens of its request. */
int traffic_accept(struct traffic *t, const struct step_result *result, double now, struct err *e);

/* The drafts of all requests up to now; none, if it is not open. */
void traffic_drafts(const struct traffic *t, struct draft_counts *c);

/* The share of all prompts' tokens that came from the prefix cache, up to now. */
double traffic_cached(const struct traffic *t);

#endif
