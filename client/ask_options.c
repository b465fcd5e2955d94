/* client/ask_options.c - see ask_options.h. */
#include "client/ask_options.h"
#include "base/opt_rows.h"
#include "client/fields.h"

#include <string.h>

#define AT(member) offsetof(struct ask_options, member)

static const struct opt prompt_rows[] = {
    FLAG("chat", chat, "send the prompt as the user's turn of a chat, rendered by the checkpoint's template"),
    TEXT("system", "TEXT", system, "with --chat: the system prompt"),
    TEXT("prompt", "TEXT", text, "the prompt, instead of the word PROMPT or TEXT; - reads standard input"),
    FIELD("add-special-tokens", "true|false", field_boolean, "bos and eos around a prompt (default true)"),
    FIELD("parse-special", "true|false", field_boolean,
          "special tokens that are spelled out in a text become tokens (default true; chats: false)"),
    FIELD("add-generation-prompt", "true|false", field_boolean, "with --chat (default true)"),
};
const struct opt_rows ask_prompt_rows = OPT_ROWS(prompt_rows);

static const struct opt generate_rows[] = {
    FIELD("prompt-ids", "IDS", field_prompt_ids, "the prompt as token ids: 1,2,3"),
    FLAG("stream", stream, "stream the text (default on a terminal)"),
    FLAG("no-stream", no_stream, "print the text when it is complete"),
    FIELD("n", "N", field_integer, "candidates (default 1)"),
    FIELD("best-of", "N", field_integer, "number of candidates to generate; the --n best are printed (default --n)"),
    FIELD("num-beams", "N", field_integer, "more than 1: beam search (default 1)"),
    FIELD("use-beam-search", NULL, field_true, "as many beams as --best-of, or --n"),
    FIELD("length-penalty", "X", field_number, "with beams (default 1)"),
    FIELD("early-stopping", "true|false|never", field_choice, "with beams (default false)"),
    FIELD("logprobs", "N", field_integer, "with --json: log-probabilities of the N likeliest tokens"),
    FIELD("prompt-logprobs", "N", field_integer, "with --json: the same for the prompt's tokens"),
    FIELD("echo", NULL, field_true, "print the prompt before the output"),
};
const struct opt_rows ask_generate_rows = OPT_ROWS(generate_rows);

static const struct opt chat_rows[] = {
    TEXT("system", "TEXT", system, "the system prompt"),
};
const struct opt_rows ask_chat_rows = OPT_ROWS(chat_rows);

static const struct opt text_rows[] = {
    FIELD("max-tokens", "N", field_integer,
          "tokens to generate at most; -1: as many as fit (default 16; in streams and chats -1)"),
    FIELD("min-tokens", "N", field_integer, "forbid the end before this many tokens (default 0)"),
    FIELD("temperature", "X", field_number, "0 is greedy (default 1)"),
    FIELD("top-k", "N", field_integer, "keep the N likeliest tokens (default 0: all)"),
    FIELD("top-p", "X", field_number, "keep the smallest set with this probability (default 1)"),
    FIELD("min-p", "X", field_number, "drop tokens below this share of the likeliest one (default 0)"),
    FIELD("seed", "N", field_integer, "the same seed gives the same text (default: chosen by the server)"),
    FIELD("repetition-penalty", "X", field_number,
          "divide positive and multiply negative logits of tokens seen before (default 1)"),
    FIELD("presence-penalty", "X", field_number, "subtract from logits of tokens generated before (default 0)"),
    FIELD("frequency-penalty", "X", field_number, "the same for each time that they were generated (default 0)"),
    FIELD("logit-bias", "ID:BIAS,...", field_bias, "add to the logits of these tokens, e.g. 50256:-100"),
    FIELD("stop", "TEXT", field_add_text, "end before this text; may be repeated up to 16 times"),
    FIELD("stop-token-ids", "IDS", field_ids, "end after any of these tokens: 1,2,3"),
    FIELD("eos-token-id", "IDS", field_ids, "the ids that end a text (default: the checkpoint's)"),
    FIELD("ignore-eos", NULL, field_true, "continue after end-of-text tokens, up to --max-tokens"),
    FIELD("include-stop-str-in-output", NULL, field_true, "keep the stop text in the output"),
    FIELD("priority", "N", field_integer, "lower values run first (default 0)"),
    FIELD("timeout-ms", "N", field_integer, "milliseconds after which the server ends the request (default: never)"),
};
const struct opt_rows ask_text_rows = OPT_ROWS(text_rows);

static const struct opt json_rows[] = {
    FLAG("json", json, "print the server's replies, one JSON object per line"),
};
const struct opt_rows ask_json_rows = OPT_ROWS(json_rows);

static const struct opt special_rows[] = {
    FIELD("skip-special-tokens", "true|false", field_boolean,
          "omit special tokens from the text (default true; detokenize: false)"),
};
const struct opt_rows ask_special_rows = OPT_ROWS(special_rows);

static const struct opt tokenize_rows[] = {
    FIELD("return-token-strs", NULL, field_true, "with --json: the tokens as texts, too"),
};
const struct opt_rows ask_tokenize_rows = OPT_ROWS(tokenize_rows);

bool ask_is(const struct ask_options *o, const char *op)
{
    return strcmp(o->op, op) == 0;
}

/* Options that would have no effect. */
static int check_unused(const struct ask_options *o, struct err *e)
{
    static const char *const shown[] = {"logprobs", "prompt_logprobs", "return_token_strs"};
    bool wordy = ask_is(o, "generate") || ask_is(o, "tokenize");
    for (size_t i = 0; i < sizeof shown / sizeof shown[0] && wordy && !o->json; i++)
        if (json_object_get(o->call.request, shown[i]) != NULL)
            return ERR(e, ERR_USAGE, "\"%s\" is shown with --json only", shown[i]);
    if (json_object_get(o->call.request, "add_generation_prompt") != NULL && wordy && !o->chat)
        return ERR(e, ERR_USAGE, "--add-generation-prompt needs --chat");
    return 0;
}

int ask_options_check(const struct ask_options *o, const char *argument, struct err *e)
{
    bool has_ids = ask_is(o, "generate") && json_object_get(o->call.request, "prompt") != NULL;
    if (argument != NULL && o->text == NULL && !has_ids)
        return ERR(e, ERR_USAGE, "%s needs %s (see: lockstep-client --help)", o->op, argument);
    if (has_ids && (o->text != NULL || o->chat))
        return ERR(e, ERR_USAGE, "--prompt-ids is the whole prompt: neither a text nor --chat goes with it");
    if (o->system != NULL && !o->chat && !ask_is(o, "chat"))
        return ERR(e, ERR_USAGE, "--system needs --chat");
    if (o->stream && o->no_stream)
        return ERR(e, ERR_USAGE, "--stream and --no-stream contradict each other");
    return check_unused(o, e);
}
