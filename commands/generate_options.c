/* commands/generate_options.c - see generate_options.h. */
#include "commands/generate_options.h"
#include "base/opt_rows.h"

#include <math.h>

#define AT(member) offsetof(struct generate_options, member)

static int add_stop(void *record, const struct opt *row, const char *text, struct err *e)
{
    struct generate_options *o = record;
    if (o->n_stop == GENERATE_MAX_STOP || *text == '\0')
        return ERR(e, ERR_USAGE, "--%s: expected up to %d texts, none empty", row->name, GENERATE_MAX_STOP);
    o->stop[o->n_stop++] = text;
    return 0;
}

static int add_choice(void *record, const struct opt *row, const char *text, struct err *e)
{
    struct generate_options *o = record;
    if (o->n_choices == GENERATE_MAX_CHOICES || *text == '\0')
        return ERR(e, ERR_USAGE, "--%s: expected up to %d texts, none empty", row->name, GENERATE_MAX_CHOICES);
    o->choice[o->n_choices++] = text;
    return 0;
}

static const struct opt rows[] = {
    TEXT("prompt", "TEXT", prompt, "the prompt"),
    TEXT("prompts", "FILE", prompts,
         "a text file with one prompt per line, or JSON lines with \"prompt\" (a string or a list of token ids); empty "
         "lines are skipped; - reads standard input"),
    TEXT("prompt-ids", "IDS", prompt_ids, "the prompt as token ids: 1,2,3"),
    INTEGER("max-tokens", sampling.max_tokens, 1, 1 << 24, -1,
            "tokens to generate at most (default: max_new_tokens of generation_config.json, otherwise 128)"),
    INTEGER("min-tokens", sampling.min_tokens, 0, 1 << 24, -1,
            "forbid the end-of-text tokens and ignore stop strings before this many (default 0)"),
    REAL("temperature", sampling.temperature, 0, 100, NAN,
         "0 is greedy (default: generation_config.json if it samples, otherwise 0)"),
    INTEGER("top-k", sampling.top_k, -1, 1 << 24, -2, "keep the N likeliest tokens; 0 or -1: all (default 0)"),
    REAL("top-p", sampling.top_p, 0, 1, NAN, "keep the smallest set with this probability (default 1)"),
    REAL("min-p", sampling.min_p, 0, 1, NAN, "drop tokens below this share of the likeliest one (default 0)"),
    REAL("repetition-penalty", sampling.repetition_penalty, 0.01, 100, NAN,
         "divide positive and multiply negative logits of tokens seen before (default 1)"),
    REAL("presence-penalty", sampling.presence_penalty, -100, 100, NAN,
         "subtract from logits of tokens generated before (default 0)"),
    REAL("frequency-penalty", sampling.frequency_penalty, -100, 100, NAN,
         "the same, once for each time that they were generated (default 0)"),
    TEXT("logit-bias", "ID:BIAS,...", logit_bias, "add to the logits of these tokens, e.g. 50256:-100"),
    INTEGER("seed", sampling.seed, 0, 9007199254740992.0, 0,
            "the same seed gives the same text at every rank count and in every batch (default 0)"),
    {"stop", "TEXT", OPT_CALL, 0, 0, 0, 0, NULL, "end before this text; may be repeated up to 16 times", add_stop},
    TEXT("stop-token-ids", "IDS", stop_token_ids, "end after any of these tokens: 1,2,3"),
    FLAG("include-stop-str-in-output", include_stop, "keep the stop text in the output"),
    FLAG("ignore-eos", sampling.ignore_eos, "continue after end-of-text tokens, up to --max-tokens"),
    TEXT("json-schema", "FILE", json_schema, "answer with JSON that this JSON schema allows"),
    TEXT("regex", "REGEX", regex, "answer with a text that this regular expression matches"),
    {"choice", "TEXT", OPT_CALL, 0, 0, 0, 0, NULL, "answer with this text, or with one of up to 64 if repeated",
     add_choice},
    INTEGER("logprobs", logprobs, 0, 20, -1, "with --json: log-probabilities of every token and of the N likeliest"),
    INTEGER("prompt-logprobs", prompt_logprobs, 0, 20, -1,
            "with --json: the same for every token of the prompt but the first, given those before it"),
    TEXT("output", "FILE", output,
         "write the results to this file instead of standard output; a full disk then ends the run with status 5, "
         "while mpirun ignores write errors"),
    TEXT("model-switch", "A,B,...", model_switch,
         "instead of --model: folders of models that answer the prompts one after the other, each replacing the one "
         "before; at the end the times of the switches are printed on standard error"),
    FLAG("json", run.json, "print one JSON object per prompt, in input order"),
    FLAG("no-echo", no_echo, "print the generated text without its prompt"),
    FLAG("no-add-special-tokens", no_special, "do not prepend the tokenizer's begin-of-text token"),
    FLAG("plain-text", plain_text, "treat special tokens that are spelled out in a prompt as ordinary text"),
    FLAG("keep-special-tokens", keep_special, "show special tokens in the text"),
    INTEGER("max-batch", run.max_batch, 1, 4096, 16, "sequences that run at once (default 16)"),
    INTEGER("max-num-seqs", run.max_batch, 1, 4096, 16, "the same under vLLM's name"),
    INTEGER("max-model-len", run.max_model_len, 1, 1 << 28, -1,
            "tokens of one sequence, prompt and output (default: as the prompts need)"),
};

const struct opt_rows generate_rows = OPT_ROWS(rows);
