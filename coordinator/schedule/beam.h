/* coordinator/schedule/beam.h - beam search as in Hugging Face transformers' generate: chooses the continuations of
 * beams, the finished hypotheses, and the end of the search. Only the arithmetic, in float32 as there;
 * coordinator/schedule/choices.c runs the sequences. With B beams and n_eos ids that end a hypothesis, the best B +
 * n_eos continuations of each beam suffice: they contain the best B that do not end, and those ends that are among the
 * best B of all. */
#ifndef SCHEDULE_BEAM_H
#define SCHEDULE_BEAM_H

#include "protocol/rules.h"

struct beam_setup {
    int num_beams, max_tokens, min_tokens; /* tokens of output; those that end one are forbidden before min_tokens */
    int n_eos;
    const int32_t *eos; /* [n_eos] borrowed */
    struct beam_rules rules;
};

struct beam_search {
    struct beam_setup setup;
    int n_tokens; /* tokens of output of every beam */
    bool done;
    int n_beams;
    struct beam {
        int parent; /* beam of the step before that it continues */
        int node;   /* its newest token; -1: none yet */
        float sum;  /* of log-probabilities */
    } beam[BEAM_MAX];
    int n_best;
    struct hypothesis {
        int node, n_tokens;
        float score;
    } best[BEAM_MAX]; /* [n_best] finished, the best first */
    struct beam_node {
        int before; /* -1: the first token */
        struct sampled sampled;
    } * node; /* every token of every beam */
    int n_nodes, node_capacity;
};

/* One beam, without tokens. The setup has passed beam_top <= SAMPLING_MAX_TOP and num_beams <= BEAM_MAX. */
void beam_open(struct beam_search *b, const struct beam_setup *setup);
void beam_close(struct beam_search *b);

/* Log-probabilities needed in every step. */
int beam_top(const struct beam_setup *setup);

/* result[i]: of beam i, with its best beam_top tokens. Afterwards `beam` has the new beams or `done` is set. */
int beam_step(struct beam_search *b, const struct sampled *result, struct err *e);

/* The newest token of beam i. */
const struct sampled *beam_token(const struct beam_search *b, int i);

/* The n tokens that end in a node, in order. */
void beam_path(const struct beam_search *b, int node, int n, struct sampled *out);

#endif
