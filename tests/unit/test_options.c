/* tests/unit/test_options.c - commands/options.c: every option, its valid positions, and the messages for wrong
 * ones. */
#include "tests/unit/unit.h"

#include "base/progress.h"
#include "commands/options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ARGUMENTS 80

/* `line` is split at spaces, "_" stands for an empty argument. The words live until the next call. */
static int parse(struct options *o, const char *line, struct err *e)
{
    static char text[2000];
    char *argv[MAX_ARGUMENTS] = {"lockstep"};
    int argc = 1;
    *e = (struct err){0};
    (void)snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok(text, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = strcmp(word, "_") == 0 ? "" : word;
    return options_parse(o, argc, argv, e);
}

static struct options good(const char *line)
{
    struct options o;
    struct err e;
    int rc = parse(&o, line, &e);
    expect_none(&e);
    assert_int_equal(rc, 0);
    return o;
}

static void bad(const char *line, const char *text)
{
    struct options o;
    struct err e;
    assert_int_equal(parse(&o, line, &e), -1);
    expect_text(&e, ERR_USAGE, text);
}

static void commands(void **state)
{
    (void)state;
    assert_int_equal(good("").command, COMMAND_HELP);
    assert_int_equal(good("--help").command, COMMAND_HELP);
    assert_int_equal(good("-h").command, COMMAND_HELP);
    assert_int_equal(good("help").help_for, COMMAND_HELP);
    assert_int_equal(good("help bench").help_for, COMMAND_BENCH);
    assert_int_equal(good("generate --model x --help").command, COMMAND_HELP);
    assert_int_equal(good("generate --model x -h").help_for, COMMAND_GENERATE);
    assert_int_equal(good("version").command, COMMAND_VERSION);
    assert_int_equal(good("--version").command, COMMAND_VERSION);
    assert_int_equal(good("inspect").command, COMMAND_INSPECT);
    bad("story", "no command \"story\": expected generate, batch, serve, inspect, bench, preflight, version or help");
    bad("serv", "no command \"serv\": did you mean serve? (see: lockstep --help)");
    bad("help genrate", "no command \"genrate\": did you mean generate? (see: lockstep --help)");
    bad("_", "no command \"\": expected generate, batch, serve, inspect, bench, preflight, version or help");
    bad("--model x",
        "no command \"--model\": expected generate, batch, serve, inspect, bench, preflight, version or help");
    assert_string_equal(command_name(COMMAND_BENCH), "bench");
}

static void defaults(void **state)
{
    (void)state;
    struct options o = good("generate");
    assert_null(o.generate.run.model);
    assert_null(o.generate.prompt);
    assert_true(isnan(o.generate.sampling.temperature) && isnan(o.generate.sampling.top_p) &&
                isnan(o.generate.sampling.min_p) && isnan(o.generate.sampling.repetition_penalty) &&
                isnan(o.generate.sampling.presence_penalty) && isnan(o.generate.sampling.frequency_penalty));
    assert_int_equal(o.generate.sampling.max_tokens, -1);
    assert_int_equal(o.generate.sampling.min_tokens, -1);
    assert_int_equal(o.generate.sampling.top_k, -2);
    assert_int_equal(o.generate.sampling.seed, 0);
    assert_int_equal(o.generate.logprobs, -1);
    assert_int_equal(o.generate.n_stop, 0);
    assert_int_equal(o.generate.run.max_batch, 16);
    assert_int_equal(o.generate.run.max_batch_tokens, -1); /* main.c chooses it for the device */
    assert_int_equal(o.generate.run.max_model_len, -1);
    assert_int_equal(o.generate.run.kv_cache_bytes, -1);
    assert_int_equal(o.generate.run.threads, -1);
    assert_int_equal(o.generate.run.device, DEVICE_AUTO);
    assert_int_equal(o.generate.run.progress, PROGRESS_AUTO);
    assert_false(o.generate.run.json || o.generate.sampling.ignore_eos || o.generate.include_stop ||
                 o.generate.no_echo || o.generate.no_special || o.generate.plain_text || o.generate.keep_special ||
                 o.generate.run.verbose);
    o = good("bench");
    assert_int_equal(o.bench.n_prompt, 512);
    assert_int_equal(o.bench.n_gen, 128);
    assert_int_equal(o.bench.n_depth, 0);
    assert_int_equal(o.bench.batch, 1);
    assert_int_equal(o.bench.repetitions, -1);
    assert_int_equal(o.bench.warmup, -1);
    assert_int_equal(o.bench.num_prompts, -1);
    assert_int_equal(o.bench.max_batch, -1);
    assert_null(o.bench.latency);
    assert_null(o.bench.throughput);
    assert_false(o.bench.profile);
    assert_int_equal(o.bench.run.load_format, LOAD_AUTO);
    assert_int_equal(good("inspect").inspect.ranks, 1);
    assert_false(good("generate").generate.run.no_prefix_caching);
    assert_false(good("generate --no-enable-prefix-caching --enable-prefix-caching").generate.run.no_prefix_caching);
}

static void every_option_of_generate(void **state)
{
    (void)state;
    struct options o = good("generate --model dir --prompt text --prompts file --prompt-ids 1,2 --max-tokens 17 "
                            "--min-tokens 3 --temperature 0.5 --top-k 40 --top-p 0.9 --min-p 0.05 "
                            "--repetition-penalty 1.1 --presence-penalty -0.5 --frequency-penalty 0.25 "
                            "--logit-bias 5:-1 --seed 9007199254740992 --stop A --stop B --stop-token-ids 3,4 "
                            "--include-stop-str-in-output --ignore-eos --logprobs 20 --json --no-echo "
                            "--no-add-special-tokens --plain-text --keep-special-tokens --max-batch 8 "
                            "--max-batch-tokens 64 --max-model-len 1000 --kv-cache-memory-bytes 5000 --threads 3 "
                            "--device cpu --progress never --verbose --no-enable-prefix-caching");
    assert_true(o.generate.run.no_prefix_caching);
    assert_string_equal(o.generate.run.model, "dir");
    assert_string_equal(o.generate.prompt, "text");
    assert_string_equal(o.generate.prompts, "file");
    assert_string_equal(o.generate.prompt_ids, "1,2");
    assert_int_equal(o.generate.sampling.max_tokens, 17);
    assert_int_equal(o.generate.sampling.min_tokens, 3);
    assert_true(o.generate.sampling.temperature == 0.5 && o.generate.sampling.top_p == 0.9 &&
                o.generate.sampling.min_p == 0.05 && o.generate.sampling.repetition_penalty == 1.1 &&
                o.generate.sampling.presence_penalty == -0.5 && o.generate.sampling.frequency_penalty == 0.25);
    assert_int_equal(o.generate.sampling.top_k, 40);
    assert_string_equal(o.generate.logit_bias, "5:-1");
    assert_int_equal(o.generate.sampling.seed, 9007199254740992);
    assert_int_equal(o.generate.n_stop, 2);
    assert_string_equal(o.generate.stop[0], "A");
    assert_string_equal(o.generate.stop[1], "B");
    assert_string_equal(o.generate.stop_token_ids, "3,4");
    assert_true(o.generate.include_stop && o.generate.sampling.ignore_eos && o.generate.run.json &&
                o.generate.no_echo && o.generate.no_special && o.generate.plain_text && o.generate.keep_special &&
                o.generate.run.verbose);
    assert_int_equal(o.generate.logprobs, 20);
    assert_int_equal(o.generate.run.max_batch, 8);
    assert_int_equal(o.generate.run.max_batch_tokens, 64);
    assert_int_equal(o.generate.run.max_model_len, 1000);
    assert_int_equal(o.generate.run.kv_cache_bytes, 5000);
    assert_int_equal(o.generate.run.threads, 3);
    assert_int_equal(o.generate.run.device, DEVICE_CPU);
    assert_int_equal(o.generate.run.progress, PROGRESS_NEVER);
}

static void every_option_of_the_others(void **state)
{
    (void)state;
    struct options o = good("inspect --model m --ranks 3 --json");
    assert_string_equal(o.inspect.run.model, "m");
    assert_int_equal(o.inspect.ranks, 3);
    assert_true(o.inspect.run.json);
    o = good("bench --model m --config c --load-format dummy --n-prompt 0 --n-gen 7 --repetitions 2 "
             "--n-depth 3 --batch 4 --latency 1:2 --throughput 3:4 --num-prompts 100 --max-batch 5 --shared-prefix 2 "
             "--warmup 0 --profile "
             "--step-times --max-step-ms 2.5 --speculative auto "
             "--max-batch-tokens 9 --kv-cache-memory-bytes 1M --threads 1 --device cuda --progress always --json");
    assert_string_equal(o.bench.config, "c");
    assert_int_equal(o.bench.run.load_format, LOAD_DUMMY);
    assert_int_equal(o.bench.n_prompt, 0);
    assert_int_equal(o.bench.n_gen, 7);
    assert_int_equal(o.bench.n_depth, 3);
    assert_int_equal(o.bench.batch, 4);
    assert_string_equal(o.bench.latency, "1:2");
    assert_string_equal(o.bench.throughput, "3:4");
    assert_int_equal(o.bench.num_prompts, 100);
    assert_int_equal(o.bench.max_batch, 5);
    assert_int_equal(o.bench.shared_prefix, 2);
    assert_true(o.bench.step_times);
    assert_int_equal(o.bench.drafts_rest, 1);
    assert_true(o.bench.run.max_step_ms == 2.5 && run_max_step(&o.bench.run) == 0.0025);
    assert_int_equal(o.generate.run.max_batch, 16); /* generate's option of the same name differs */
    assert_int_equal(o.bench.repetitions, 2);
    assert_int_equal(o.bench.warmup, 0);
    assert_true(o.bench.profile);
    assert_int_equal(o.bench.run.max_batch_tokens, 9);
    assert_int_equal(o.bench.run.device, DEVICE_CUDA);
    assert_int_equal(o.bench.run.progress, PROGRESS_ALWAYS);
}

static void forms_of_values(void **state)
{
    (void)state;
    assert_true(good("serve --max-step-ms 40").serve.service.run.max_step_ms == 40);
    assert_true(good("batch").batch.service.run.max_step_ms < 0);
    struct options o = good("generate --model=a=b --prompt= --max-tokens=5 --max-tokens 6 --stop --json");
    assert_string_equal(o.generate.run.model, "a=b");
    assert_string_equal(o.generate.prompt, "");
    assert_int_equal(o.generate.sampling.max_tokens, 6); /* the last one counts */
    assert_string_equal(o.generate.stop[0], "--json");
    assert_false(o.generate.run.json);
    assert_int_equal(good("generate --top-k -1").generate.sampling.top_k, -1);
    assert_int_equal(good("generate --device=cuda").generate.run.device, DEVICE_CUDA);
}

/* Given options are kept, and a step has room for one token of each sequence. */
static void limits_are_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool on_gpus, many;
        int64_t tokens, batch;
    } known[] = {
        {"serve", false, false, 512, 256},
        {"serve", true, false, 4096, 1024},
        {"serve --models-dir m", true, true, 2048, 256},
        {"serve --max-batch-tokens 64", true, false, 64, 64},
        {"serve --max-num-batched-tokens 8192", true, false, 8192, 1024},
        {"serve --max-batch-tokens 400", false, false, 400, 256},
        {"serve --models-dir m", false, true, 512, 256},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct options o = good(known[i].line);
        struct run_options *run = options_run(&o);
        bool given = run->max_batch_tokens >= 0;
        assert_int_equal(options_many(&o), known[i].many);
        run_choose_limits(run, known[i].on_gpus, known[i].many);
        assert_int_equal(run->max_batch_tokens, known[i].tokens);
        assert_int_equal(run->usual_batch, known[i].batch);
        assert_int_equal(run->tokens_chosen, !given);
    }
    assert_int_equal(good("batch --max-num-seqs 7").batch.service.run.max_batch, 7);
    assert_true(options_many(&(struct options){.command = COMMAND_BENCH, .bench.model_switch = "a,b"}));
    assert_false(options_many(&(struct options){.command = COMMAND_BATCH}));
}

static void letters(void **state)
{
    (void)state;
    struct options o = good("generate -m dir -p text -n 5 -t 2 -o file -v");
    assert_string_equal(o.generate.run.model, "dir");
    assert_string_equal(o.generate.prompt, "text");
    assert_string_equal(o.generate.output, "file");
    assert_int_equal(o.generate.sampling.max_tokens, 5);
    assert_int_equal(o.generate.run.threads, 2);
    assert_true(o.generate.run.verbose);
    assert_int_equal(good("bench -p 7").bench.n_prompt, 7);
    assert_int_equal(good("bench -n 7").bench.n_gen, 7);
    assert_int_equal(good("inspect -n 7").inspect.ranks, 7);
    assert_string_equal(good("batch -i lines").batch.input[0], "lines");
}

static void refusals(void **state)
{
    (void)state;
    bad("generate --modle x",
        "generate has no option \"--modle\": did you mean --model? (see: lockstep generate --help)");
    bad("generate --mode x",
        "generate has no option \"--mode\": did you mean --model? (see: lockstep generate --help)");
    bad("generate --modelx=1",
        "generate has no option \"--modelx=1\": did you mean --model? (see: lockstep generate --help)");
    bad("generate -model x",
        "found \"-model\", expected an option: did you mean --model? (see: lockstep generate --help)");
    bad("generate --", "generate has no option \"--\" (see: lockstep generate --help)");
    bad("generate --ranks 2", "generate has no option \"--ranks\" (see: lockstep generate --help)");
    bad("inspect --prompt x", "inspect has no option \"--prompt\" (see: lockstep inspect --help)");
    bad("bench --max-tokens 1", "bench has no option \"--max-tokens\" (see: lockstep bench --help)");
    bad("generate --profile", "generate has no option \"--profile\" (see: lockstep generate --help)");
    bad("inspect --max-batch 2", "inspect has no option \"--max-batch\" (see: lockstep inspect --help)");
    bad("bench --max-batch 4097", "--max-batch: found \"4097\", expected an integer in [1, 4096]");
    bad("bench --kv-cache-memory-bytes 1X", "--kv-cache-memory-bytes: found \"1X\", expected an integer in [1024, "
                                            "1000000000000000000], K, M, G or T may follow it");
    bad("bench --num-prompts 0", "--num-prompts: found \"0\", expected an integer in [1, 100000]");
    bad("bench --warmup 1001", "--warmup: found \"1001\", expected an integer in [0, 1000]");
    bad("bench --repetitions 0", "--repetitions: found \"0\", expected an integer in [1, 1000]");
    bad("bench --profile=1", "--profile takes no value");
    bad("bench --throughput", "--throughput needs a value: IN:OUT");
    bad("generate prompt", "found \"prompt\", expected an option (see: lockstep generate --help)");
    bad("generate -x 1", "generate has no option \"-x\" (see: lockstep generate --help)");
    bad("generate -i x", "generate has no option \"-i\" (see: lockstep generate --help)");
    bad("generate -p", "--prompt needs a value: TEXT");
    bad("generate -n x", "--max-tokens: found \"x\", expected an integer in [1, 16777216]");
    bad("generate --model", "--model needs a value: DIR");
    bad("generate --json --max-tokens", "--max-tokens needs a value: N");
    bad("bench --load-format", "--load-format needs a value: auto|safetensors|dummy");
    bad("generate --json=1", "--json takes no value");
    bad("generate --max-tokens 0", "--max-tokens: found \"0\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens 16777217", "--max-tokens: found \"16777217\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens _", "--max-tokens: found \"\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens 5x", "--max-tokens: found \"5x\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens 5K", "--max-tokens: found \"5K\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens 1.5", "--max-tokens: found \"1.5\", expected an integer in [1, 16777216]");
    bad("generate --max-tokens 99999999999999999999",
        "--max-tokens: found \"99999999999999999999\", expected an integer in [1, 16777216]");
    bad("generate --top-k -2", "--top-k: found \"-2\", expected an integer in [-1, 16777216]");
    bad("generate --temperature -0.1", "--temperature: found \"-0.1\", expected a number in [0, 100]");
    bad("generate --temperature nan", "--temperature: found \"nan\", expected a number in [0, 100]");
    bad("generate --temperature inf", "--temperature: found \"inf\", expected a number in [0, 100]");
    bad("generate --temperature 1,0", "--temperature: found \"1,0\", expected a number in [0, 100]");
    bad("generate --top-p 1.0001", "--top-p: found \"1.0001\", expected a number in [0, 1]");
    bad("generate --seed -1", "--seed: found \"-1\", expected an integer in [0, 9007199254740992]");
    bad("generate --seed 9007199254740993",
        "--seed: found \"9007199254740993\", expected an integer in [0, 9007199254740992]");
    bad("generate --logprobs 21", "--logprobs: found \"21\", expected an integer in [0, 20]");
    bad("generate --device gpu", "--device: found \"gpu\", expected auto|cpu|cuda");
    bad("bench --load-way both", "--load-way: found \"both\", expected auto|together|alone");
    bad("generate --device cp", "--device: found \"cp\", expected auto|cpu|cuda");
    bad("generate --device cpu|cuda", "--device: found \"cpu|cuda\", expected auto|cpu|cuda");
    bad("generate --device _", "--device: found \"\", expected auto|cpu|cuda");
    bad("generate --stop _", "--stop: expected up to 16 texts, none empty");
}

/* Contradictions between options are detected once the number of ranks is known. */
static void loading(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        bool fine;
    } cases[] = {{"batch", true},
                 {"bench --load-threads 1", true},
                 {"serve --load-threads 2 --load-piece-bytes 64K", true},
                 {"bench --load-threads 1 --load-piece-bytes 64K", false},
                 {"generate --load-way alone --load-piece-bytes 64K", true},
                 {"generate --load-way together --load-piece-bytes 64K", false},
                 {"generate --load-piece-bytes 64K", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options o = good(cases[i].line);
        struct err e = {0};
        assert_int_equal(run_check_loading(options_run(&o), &e), cases[i].fine ? 0 : -1);
        if (cases[i].fine)
            expect_none(&e);
        else
            EXPECT_PARTS(&e, ERR_USAGE, "--load-piece-bytes needs --load-threads of 2 or more");
    }
}

static void invariance(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum err_code code;
        const char *says;
    } cases[] = {{"serve", ERR_NONE, NULL},
                 {"serve --batch-invariant", ERR_NONE, NULL},
                 {"batch --batch-invariant --step separate", ERR_NONE, NULL},
                 {"bench --batch-invariant --step persistent", ERR_USAGE, "--batch-invariant with --step persistent"},
                 {"serve --batch-invariant --max-batch-tokens 65536", ERR_NONE, NULL},
                 {"serve --batch-invariant --max-batch-tokens 65537", ERR_USAGE, "expected at most 65536"},
                 {"serve --batch-invariant --quantized-activations auto", ERR_NONE, NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct options o = good(cases[i].line);
        struct err e = {0};
        assert_int_equal(run_check_invariance(options_run(&o), &e), cases[i].code == ERR_NONE ? 0 : -1);
        if (cases[i].code == ERR_NONE)
            expect_none(&e);
        else
            EXPECT_PARTS(&e, cases[i].code, cases[i].says);
    }
}

static void bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"1024", 1024},
                 {"1K", 1024},
                 {"2k", 2048},
                 {"3KiB", 3072},
                 {"3KB", 3072},
                 {"5M", 5 << 20},
                 {"5MiB", 5 << 20},
                 {"7g", (int64_t)7 << 30},
                 {"2T", (int64_t)2 << 40},
                 {"999999999999999999", 999999999999999999}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[100];
        (void)snprintf(line, sizeof line, "generate --kv-cache-memory-bytes %s", cases[i].text);
        assert_int_equal(good(line).generate.run.kv_cache_bytes, cases[i].value);
    }
    static const char *const wrong[] = {"1023",    "0K",  "1X",  "K",   "1Ki B",    "1KiBB",
                                        "1Bi",     "1 K", "-1K", "9e5", "1000000T", "99999999999999999999",
                                        "8388608T"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct options o;
        struct err e = {0};
        char *argv[] = {"lockstep", "bench", "--kv-cache-memory-bytes", (char *)wrong[i]};
        if (options_parse(&o, 4, argv, &e) == 0)
            print_error("accepted: %s\n", wrong[i]);
        EXPECT_PARTS(&e, ERR_USAGE, "--kv-cache-memory-bytes: found \"", wrong[i], "expected an integer in [1024, ");
    }
}

static void stop_list_is_bounded(void **state)
{
    (void)state;
    char line[1000] = "generate";
    for (int i = 0; i < GENERATE_MAX_STOP; i++)
        (void)sprintf(line + strlen(line), " --stop s%d", i);
    struct options o = good(line);
    assert_int_equal(o.generate.n_stop, GENERATE_MAX_STOP);
    assert_string_equal(o.generate.stop[15], "s15");
    strcat(line, " --stop s16");
    bad(line, "--stop: expected up to 16 texts, none empty");
}

static void environment(void **state)
{
    (void)state;
    setenv("LOCKSTEP_MAX_TOKENS", "33", 1);
    setenv("LOCKSTEP_TEMPERATURE", "0.25", 1);
    setenv("LOCKSTEP_NO_ECHO", "1", 1);
    setenv("LOCKSTEP_JSON", "0", 1);
    setenv("LOCKSTEP_STOP", "END", 1);
    setenv("LOCKSTEP_INCLUDE_STOP_STR_IN_OUTPUT", "1", 1);
    setenv("LOCKSTEP_RANKS", "nonsense", 1); /* not an option of generate */
    setenv("LOCKSTEP_DEVICE", "cuda", 1);
    struct options o = good("generate --device cpu");
    assert_int_equal(o.generate.sampling.max_tokens, 33);
    assert_true(o.generate.sampling.temperature == 0.25);
    assert_true(o.generate.no_echo && o.generate.include_stop);
    assert_false(o.generate.run.json);
    assert_int_equal(o.generate.n_stop, 1);
    assert_string_equal(o.generate.stop[0], "END");
    assert_int_equal(o.generate.run.device, DEVICE_CPU);
    o = good("generate --max-tokens 5 --stop A --stop B --json");
    assert_int_equal(o.generate.sampling.max_tokens, 5);
    assert_int_equal(o.generate.n_stop, 2); /* the variable does not add to the list */
    assert_true(o.generate.run.json);
    setenv("LOCKSTEP_MAX_BATCH", "7", 1);
    o = good("bench");
    assert_int_equal(o.bench.max_batch, 7);
    assert_int_equal(o.generate.run.max_batch, 16);
    o = good("generate");
    assert_int_equal(o.bench.max_batch, -1);
    assert_int_equal(o.generate.run.max_batch, 7);
    bad("inspect",
        "environment variable LOCKSTEP_RANKS: --ranks: found \"nonsense\", expected an integer in [1, 65536]");
    assert_int_equal(good("inspect --ranks 2").inspect.ranks, 2);
    setenv("LOCKSTEP_NO_ECHO", "yes", 1);
    bad("generate", "environment variable LOCKSTEP_NO_ECHO: found \"yes\", expected 0 or 1");
    setenv("LOCKSTEP_NO_ECHO", "", 1);
    bad("generate", "environment variable LOCKSTEP_NO_ECHO: found \"\", expected 0 or 1");
    assert_true(good("generate --no-echo").generate.no_echo);
    const char *const names[] = {"MAX_TOKENS", "TEMPERATURE", "NO_ECHO",  "JSON", "STOP", "INCLUDE_STOP_STR_IN_OUTPUT",
                                 "RANKS",      "DEVICE",      "MAX_BATCH"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[80];
        (void)snprintf(name, sizeof name, "LOCKSTEP_%s", names[i]);
        unsetenv(name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands),
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_option_of_generate),
        cmocka_unit_test(every_option_of_the_others),
        cmocka_unit_test(forms_of_values),
        cmocka_unit_test(limits_are_chosen),
        cmocka_unit_test(letters),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bytes),
        cmocka_unit_test(loading),
        cmocka_unit_test(invariance),
        cmocka_unit_test(stop_list_is_bounded),
        cmocka_unit_test(environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
