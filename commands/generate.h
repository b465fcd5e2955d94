/* commands/generate.h - `lockstep generate` on rank 0: prompts in, text or JSON lines out, in input order. */
#ifndef COMMANDS_GENERATE_H
#define COMMANDS_GENERATE_H

#include "base/progress.h"
#include "commands/prompts.h"
#include "commands/texts.h"
#include "coordinator/schedule/scheduler.h"
#include "partition/model.h"
#include "plan/rank_stats.h"

#include <stdio.h>

/* The model that generates, in the folder of --model. Borrowed. */
struct generate_model {
    const char *name; /* name to show; NULL: it is the only model */
    const struct model_config *config;
    struct texts *texts;
    bool goes_on; /* appended after the results of another one */
};

struct generate {
    const struct generate_options *o; /* borrowed, as the next two */
    const char *name;                 /* of the model; NULL: it is the only one */
    struct texts *texts;
    bool goes_on; /* see struct generate_model */
    struct request_rules rules;
    struct prompt_list prompts;
    struct request *request; /* [n] */
    int n, n_finished, n_failed, next_to_print;
    int longest;                           /* tokens of the longest request, prompt and output */
    struct blocks_source source[KV_KINDS]; /* of struct scheduler_setup; set before generate_start */
    uint64_t n_prompt_tokens, n_output_tokens;
    struct scheduler scheduler;
    FILE *out;       /* standard output, or the file of --output */
    bool streams;    /* text is written as it arrives */
    size_t streamed; /* bytes of the request's text printed so far */
    struct progress progress;
    double started, first_token;
    struct err output_error;
    char ranks[240]; /* the ranks' measurements, as text */
    double joules;   /* energy that all devices used for it; NAN: unknown */
    bool joules_integrated;
};

/* Read generation config and prompts; encode. g->longest is the length of the longest sequence. Rank 0, local. */
int generate_open(struct generate *g, const struct generate_options *o, const struct generate_model *model,
                  struct err *e);

/* Queues everything, given the limits. */
int generate_start(struct generate *g, const struct limits *l, struct err *e);

/* The two functions of struct loop_client. */
int generate_next(void *context, struct plan *plan, struct err *e);
int generate_accept(void *context, const struct step_result *result, struct err *e);
void generate_masks(void *context, struct plan *plan);

/* The ranks' measurements so far. */
void generate_report(void *context, const struct rank_report *report);

/* Exit status of the run: 0, or ERR_REQUEST if a prompt failed. Closes the output, whose
 * last errors go to *e, and logs the speed and what the ranks measured. */
int generate_status(struct generate *g, struct err *e);

void generate_close(struct generate *g);

#endif
