/* commands/generate_options.h - options of `generate`. */
#ifndef COMMANDS_GENERATE_OPTIONS_H
#define COMMANDS_GENERATE_OPTIONS_H

#include "base/run_options.h"
#include "base/sampling_options.h"

#define GENERATE_MAX_STOP    16
#define GENERATE_MAX_CHOICES 64

/* Strings are borrowed from argv or the environment. */
struct generate_options {
    struct run_options run;
    struct sampling_options sampling; /* missing values may come from generation_config.json */
    const char *prompt, *prompts, *prompt_ids, *output;
    const char *model_switch; /* folders separated by commas; NULL: one model answers */
    const char *stop[GENERATE_MAX_STOP], *stop_token_ids, *logit_bias;
    const char *json_schema, *regex, *choice[GENERATE_MAX_CHOICES];
    int64_t n_choices;
    int64_t n_stop, logprobs, prompt_logprobs; /* -1: not given */
    bool include_stop, no_echo, no_special, plain_text, keep_special;
};

extern const struct opt_rows generate_rows;

#endif
