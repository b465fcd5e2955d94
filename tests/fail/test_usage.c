/* tests/fail/test_usage.c - options that are unknown, missing, out of range or contradictory; a device that this build
 * does not support; prompt files that cannot be read. */
#include "base/err.h"
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"

#include <stddef.h>

#define GENERATE "generate", "--model", "DIR"

static const struct bad_start cases[] = {
    {"an unknown command", .argument = {"frobnicate", NULL}, .status = ERR_USAGE,
     .words = {"\"frobnicate\"", "expected generate, batch, serve"}},
    {"an unknown option", .argument = {GENERATE, "--warp", "9", NULL}, .status = ERR_USAGE,
     .words = {"generate", "\"--warp\"", "lockstep generate --help"}},
    {"an option of another command", .argument = {GENERATE, "--repetitions", "9", NULL}, .status = ERR_USAGE,
     .words = {"\"--repetitions\"", "lockstep generate --help"}},
    {"an option without its value", .argument = {GENERATE, "--prompt", NULL}, .status = ERR_USAGE,
     .words = {"--prompt", "needs a value", "TEXT"}},
    {"an empty path", .argument = {"generate", "--model", "", "--prompt", "a", NULL}, .status = ERR_USAGE,
     .words = {"--model: found an empty value, expected DIR"}},
    {"an option in place of a path", .argument = {"batch", "--model", "-i", "in.jsonl", NULL}, .status = ERR_USAGE,
     .words = {"--model: found the option -i, expected DIR"}},
    {"a long option in place of a path", .argument = {"batch", "--output", "--plain", NULL}, .status = ERR_USAGE,
     .words = {"--output: found the option --plain, expected FILE"}},
    {"a flag with a value", .argument = {GENERATE, "--json=yes", NULL}, .status = ERR_USAGE,
     .words = {"--json", "takes no value"}},
    {"a word that is not an option", .argument = {GENERATE, "story", NULL}, .status = ERR_USAGE,
     .words = {"\"story\"", "expected an option"}},
    {"no model", .argument = {"generate", "--prompt", "a", NULL}, .status = ERR_USAGE, .words = {"--model"}},
    {"the name of a repository", .argument = {"generate", "--model", "no-owner/no-model", "--prompt", "a", NULL},
     .status = ERR_IO, .words = {"no such folder", "Hub's cache", "hf download no-owner/no-model"}},
    {"a revision of a folder", .argument = {GENERATE, "--prompt", "a", "--revision", "v1", NULL}, .status = ERR_USAGE,
     .words = {"--revision belongs to --model OWNER/NAME", "found the folder "}},
    {"a missing folder", .argument = {"generate", "--model", "./meta-llama/x", "--prompt", "a", NULL}, .status = ERR_IO,
     .words = {"./meta-llama/x: cannot open the folder: No such file"}},
    {"no prompt", .argument = {GENERATE, NULL}, .status = ERR_USAGE,
     .words = {"exactly one of --prompt, --prompts and --prompt-ids"}},
    {"two kinds of prompt", .argument = {GENERATE, "--prompt", "a", "--prompts", "b", NULL}, .status = ERR_USAGE,
     .words = {"exactly one of --prompt, --prompts and --prompt-ids"}},
    {"an invalid number", .argument = {GENERATE, "--prompt", "a", "--max-tokens", "ten", NULL}, .status = ERR_USAGE,
     .words = {"--max-tokens", "\"ten\"", "expected an integer in [1, "}},
    {"a number out of range", .argument = {GENERATE, "--prompt", "a", "--max-tokens", "0", NULL}, .status = ERR_USAGE,
     .words = {"--max-tokens", "\"0\"", "expected an integer in [1, "}},
    {"a number beyond 2^63", .argument = {GENERATE, "--prompt", "a", "--seed", "99999999999999999999", NULL},
     .status = ERR_USAGE, .words = {"--seed", "\"99999999999999999999\"", "expected an integer in [0, "}},
    {"a temperature that is not a number", .argument = {GENERATE, "--prompt", "a", "--temperature", "nan", NULL},
     .status = ERR_USAGE, .words = {"--temperature", "\"nan\"", "expected a number in [0, 100]"}},
    {"an unknown choice", .argument = {GENERATE, "--prompt", "a", "--progress", "maybe", NULL}, .status = ERR_USAGE,
     .words = {"--progress", "\"maybe\"", "expected auto|always|never"}},
    {"a device that this build does not support", .argument = {GENERATE, "--prompt", "a", "--device", "cuda", NULL},
     .status = ERR_UNSUPPORTED, .words = {"--device cuda", "only the cpu"}},
    {"logprobs without JSON", .argument = {GENERATE, "--prompt", "a", "--logprobs", "2", NULL}, .status = ERR_USAGE,
     .words = {"--logprobs needs --json"}},
    {"prompt logprobs without JSON", .argument = {GENERATE, "--prompt", "a", "--prompt-logprobs", "2", NULL},
     .status = ERR_USAGE, .words = {"--prompt-logprobs needs --json"}},
    {"top-k without temperature", .argument = {GENERATE, "--prompt", "a", "--top-k", "5", NULL}, .status = ERR_USAGE,
     .words = {"--top-k", "--temperature"}},
    {"a prompt id out of range", .argument = {GENERATE, "--prompt-ids", "1,101", NULL}, .status = ERR_USAGE,
     .words = {"--prompt-ids", "\"101\"", "expected token ids in [0, 100]"}},
    {"prompt ids that are text", .argument = {GENERATE, "--prompt-ids", "1,,2", NULL}, .status = ERR_USAGE,
     .words = {"--prompt-ids", "\",2\"", "expected token ids in [0, 100]"}},
    {"an empty list of prompt ids", .argument = {GENERATE, "--prompt-ids", "", NULL}, .status = ERR_USAGE,
     .words = {"--prompt-ids", "expected token ids in [0, 100]"}},
    {"a bias without a value", .argument = {GENERATE, "--prompt", "a", "--logit-bias", "7", NULL}, .status = ERR_USAGE,
     .words = {"--logit-bias", "\"7\"", "expected ID:BIAS"}},
    {"a stop id out of range", .argument = {GENERATE, "--prompt", "a", "--stop-token-ids", "-1", NULL},
     .status = ERR_USAGE, .words = {"--stop-token-ids", "\"-1\"", "expected token ids in [0, 100]"}},
    {"an empty stop text", .argument = {GENERATE, "--prompt", "a", "--stop", "", NULL}, .status = ERR_USAGE,
     .words = {"--stop", "none empty"}},
    {"a stop text that is not UTF-8", .argument = {GENERATE, "--prompt", "a", "--stop", "\xc3", NULL},
     .status = ERR_USAGE, .words = {"--stop", "UTF-8"}},
    {"more sequences than tokens in a step", .argument = {GENERATE, "--prompt", "a", "--max-batch-tokens", "2", NULL},
     .status = ERR_USAGE, .words = {"--max-batch-tokens 2", "--max-batch 16"}},
    {"a port beyond 65535", .argument = {"serve", "--model", "DIR", "--endpoint", "tcp://127.0.0.1:99999", NULL},
     .status = ERR_USAGE, .words = {"--endpoint", "\"99999\"", "[1, 65535]"}},
    {"no file of prompts", .argument = {GENERATE, "--prompts", "/nowhere/prompts.txt", NULL}, .status = ERR_IO,
     .words = {"/nowhere/prompts.txt", "cannot open", "No such file"}},
    {"a folder of prompts", .argument = {GENERATE, "--prompts", "/tmp", NULL}, .status = ERR_IO,
     .words = {"/tmp", "cannot read"}},
    {"an empty file of prompts", .argument = {GENERATE, "--prompts", "/dev/null", NULL}, .status = ERR_INPUT,
     .words = {"/dev/null", "no prompt", "expected one prompt per line"}},
};

/* JSON lines that are not valid requests. */
#define LINES(text) "lines.jsonl", NULL, text "\n"
#define READ        "generate", "--model", "DIR", "--prompts"

static const struct bad_start lines[] = {
    {"a line that is not JSON", LINES("{\"prompt\": \"a\"}\n{\"prompt\""), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 2", "not valid JSON"}},
    {"a line that is an array", LINES("[1, 2]"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "an array", "expected an object with \"prompt\""}},
    {"a line without a prompt", LINES("{}"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "\"prompt\" is nothing", "expected a string or a list"}},
    {"a line with a prompt that is a number", LINES("{\"prompt\": 7}"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "\"prompt\" is an integer", "expected a string or a list"}},
    {"a line with an unknown member", LINES("{\"prompt\": \"a\", \"seed\": 1}"), .status = ERR_UNSUPPORTED,
     .words = {"lines.jsonl: line 1", "\"seed\"", "only \"prompt\""}},
    {"a line with an id out of range", LINES("{\"prompt\": [1, 101]}"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "item 1", "expected a token id in [0, 100]"}},
    {"a line with a fractional id", LINES("{\"prompt\": [1.5]}"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "item 0", "a real number", "expected a token id in [0, 100]"}},
    {"a line with a repeated key", LINES("{\"prompt\": \"a\", \"prompt\": \"b\"}"), .status = ERR_INPUT,
     .words = {"lines.jsonl: line 1", "duplicate", "prompt"}},
};

int main(void)
{
    enum { N_LINES = sizeof lines / sizeof lines[0] };
    struct bad_start with_file[N_LINES];
    bad_start_run(cases, (int)(sizeof cases / sizeof cases[0]));
    for (int i = 0; i < N_LINES; i++) {
        with_file[i] = lines[i];
        const char *const arguments[] = {READ, "DIR/lines.jsonl", NULL};
        for (int k = 0; k < 6; k++)
            with_file[i].argument[k] = arguments[k];
    }
    bad_start_run(with_file, N_LINES);
    return cases_done();
}
