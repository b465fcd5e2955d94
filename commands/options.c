/* commands/options.c - see options.h. */
#include "commands/options.h"
#include "base/nearest.h"
#include "base/opt_rows.h"
#include "partition/families.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(member) offsetof(struct inspect_options, member)
static const struct opt inspect_row[] = {
    INTEGER("ranks", ranks, 1, 65536, 1, "number of ranks to split for, all replicas together (default 1)"),
    {"read-rate", "BYTES", OPT_BYTES, AT(read_rate), 1, 1e15, -1, NULL,
     "bytes that a rank reads per second; K, M, G, T are accepted (default 10G, GPUs 4500G): for the estimate of the "
     "best number of ranks for a mixture of experts; `preflight` measures it",
     NULL},
    REAL("sum-us", sum_us, 0, 1e9, -1, "microseconds of a sum over ranks, for the same estimate (default 20, GPUs 8)"),
};
static const struct opt_rows inspect_rows = OPT_ROWS(inspect_row);
#undef AT

#define AT(member) offsetof(struct run_options, member)
static const struct opt preflight_row[] = {
    TEXT("model", "DIR", model, "Hugging Face folder; its weight files are read in samples"),
};
static const struct opt_rows preflight_rows = OPT_ROWS(preflight_row);
#undef AT

#define IN(member) offsetof(struct options, member)
static const struct opt_part parts[] = {
    {&run_model_rows, IN(generate.run), COMMAND_GENERATE},
    {&generate_rows, IN(generate), COMMAND_GENERATE},
    {&run_kv_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_fp8_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_inputs_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_load_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_prefix_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_draft_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_host_rows, IN(generate.run), COMMAND_GENERATE},
    {&run_device_rows, IN(generate.run), COMMAND_GENERATE},

    {&run_model_rows, IN(serve.service.run), COMMAND_SERVE},
    {&models_rows, IN(serve.models), COMMAND_SERVE},
    {&serve_rows, IN(serve), COMMAND_SERVE},
    {&service_rows, IN(serve.service), COMMAND_SERVE},
    {&run_kv_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_fp8_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_inputs_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_load_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_prefix_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_bound_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_draft_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_host_rows, IN(serve.service.run), COMMAND_SERVE},
    {&run_device_rows, IN(serve.service.run), COMMAND_SERVE},

    {&run_model_rows, IN(batch.service.run), COMMAND_BATCH},
    {&batch_rows, IN(batch), COMMAND_BATCH},
    {&models_rows, IN(batch.models), COMMAND_BATCH},
    {&service_rows, IN(batch.service), COMMAND_BATCH},
    {&run_kv_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_fp8_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_inputs_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_load_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_prefix_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_bound_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_draft_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_host_rows, IN(batch.service.run), COMMAND_BATCH},
    {&run_device_rows, IN(batch.service.run), COMMAND_BATCH},

    {&run_model_rows, IN(bench.run), COMMAND_BENCH},
    {&bench_rows, IN(bench), COMMAND_BENCH},
    {&run_json_rows, IN(bench.run), COMMAND_BENCH},
    {&run_bound_rows, IN(bench.run), COMMAND_BENCH},
    {&run_kv_rows, IN(bench.run), COMMAND_BENCH},
    {&run_inputs_rows, IN(bench.run), COMMAND_BENCH},
    {&run_load_rows, IN(bench.run), COMMAND_BENCH},
    {&run_host_rows, IN(bench.run), COMMAND_BENCH},
    {&run_device_rows, IN(bench.run), COMMAND_BENCH},

    {&run_model_rows, IN(inspect.run), COMMAND_INSPECT},
    {&inspect_rows, IN(inspect), COMMAND_INSPECT},
    {&run_kv_rows, IN(inspect.run), COMMAND_INSPECT},
    {&run_fp8_rows, IN(inspect.run), COMMAND_INSPECT},
    {&run_json_rows, IN(inspect.run), COMMAND_INSPECT},
    {&run_device_rows, IN(inspect.run), COMMAND_INSPECT},

    {&preflight_rows, IN(preflight), COMMAND_PREFLIGHT},
    {&run_json_rows, IN(preflight), COMMAND_PREFLIGHT},
    {&run_host_rows, IN(preflight), COMMAND_PREFLIGHT},
    {&run_device_rows, IN(preflight), COMMAND_PREFLIGHT},
};

/* The letters of llama.cpp, llama-bench, and mpirun's -n, with the same meanings. */
static const struct opt_letter letters[] = {
    {'m', "model"}, {'p', "prompt"},  {'n', "max-tokens"}, {'p', "n-prompt"}, {'n', "n-gen"},
    {'n', "ranks"}, {'t', "threads"}, {'i', "input"},      {'o', "output"},   {'v', "verbose"},
};

static const struct opt_table options_table = {
    "lockstep", "LOCKSTEP_", parts, sizeof parts / sizeof parts[0], letters, sizeof letters / sizeof letters[0]};

static const struct opt_command commands[] = {
    {COMMAND_GENERATE, "generate",
     "mpirun -n N lockstep generate --model DIR | --model-switch A,B --prompt TEXT [options]",
     "Generate text for one prompt or a file of prompts, all ranks working on every token."},
    {COMMAND_SERVE, "serve", "mpirun -n N lockstep serve --model DIR | --models-dir DIR [--endpoint ADDRESS] [options]",
     "Answer requests over ZeroMQ. docs/protocol.md specifies the messages, docs/serve.md explains how to run a "
     "server."},
    {COMMAND_BATCH, "batch",
     "mpirun -n N lockstep batch --model DIR | --models-dir DIR --input FILE --output FILE [options]",
     "Process files of requests. Finished results are kept when a job ends early, and the next run continues; nothing "
     "is lost or done twice. docs/batch.md describes the lines."},
    {COMMAND_INSPECT, "inspect", "lockstep inspect --model DIR --ranks N [--json]",
     "Show the share of every rank: the shard table, bytes per rank, KV bytes per token. Reads headers only; runs "
     "without mpirun."},
    {COMMAND_BENCH, "bench",
     "mpirun -n N lockstep bench --model DIR | --config FILE --load-format dummy | --model-switch A,B [options]",
     "Measure prefill, decode, latency and throughput, compared with the machine's read bandwidth in the same run."},
    {COMMAND_PREFLIGHT, "preflight", "mpirun -n N lockstep preflight [--model DIR] [--json] [options]",
     "Check every node within a few seconds: placement, P2P, sums over the ranks, memory, files, clocks and memory "
     "errors of GPUs, messages between ranks. An unhealthy node ends the job with status 9 and a line that names it. "
     "See "
     "docs/preflight.md."},
    {COMMAND_VERSION, "version", "lockstep version", "Print the version."},
    {COMMAND_HELP, "help", "lockstep help [COMMAND]", "Print this overview, or the options of a command."},
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])
#define SUMMARY    "tensor-parallel text generation, one MPI rank per device"

const char *command_name(enum command command)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == (int)command)
            return commands[i].name;
    return "?";
}

struct run_options *options_run(struct options *o)
{
    switch (o->command) {
    case COMMAND_SERVE:
        return &o->serve.service.run;
    case COMMAND_BATCH:
        return &o->batch.service.run;
    case COMMAND_BENCH:
        return &o->bench.run;
    case COMMAND_INSPECT:
        return &o->inspect.run;
    case COMMAND_PREFLIGHT:
        return &o->preflight;
    case COMMAND_GENERATE:
    case COMMAND_HELP:
    case COMMAND_VERSION:
        break;
    }
    return &o->generate.run;
}

bool options_many(const struct options *o)
{
    return (o->command == COMMAND_SERVE && o->serve.models.dir != NULL) ||
           (o->command == COMMAND_BATCH && o->batch.models.dir != NULL) ||
           (o->command == COMMAND_GENERATE && o->generate.model_switch != NULL) ||
           (o->command == COMMAND_BENCH && o->bench.model_switch != NULL);
}

/* N_COMMANDS: no command has this name. */
static size_t find_command(const char *word)
{
    size_t i = 0;
    while (i < N_COMMANDS && strcmp(commands[i].name, word) != 0)
        i++;
    return i;
}

static int no_such_command(const char *word, struct err *e)
{
    const char *best = NULL;
    int least = nearest_limit(word) + 1;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int changes = nearest_distance(word, commands[i].name);
        if (changes < least) {
            least = changes;
            best = commands[i].name;
        }
    }
    if (best != NULL)
        return ERR(e, ERR_USAGE, "no command \"%.80s\": did you mean %s? (see: lockstep --help)", word, best);
    return ERR(e, ERR_USAGE,
               "no command \"%.80s\": expected generate, batch, serve, inspect, bench, preflight, version or help",
               word);
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    bool given[OPT_MAX_ROWS] = {false}, help = false;
    struct opt_words words = {0};
    *o = (struct options){0};
    opt_defaults(&options_table, o);
    const char *word = argc > 1 ? argv[1] : "help";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0)
        word = "version";
    size_t i = find_command(word);
    if (i == N_COMMANDS)
        return no_such_command(word, e);
    o->command = (enum command)commands[i].command;
    if (o->command == COMMAND_HELP) {
        size_t k = argc > 2 ? find_command(argv[2]) : 0;
        if (k == N_COMMANDS)
            return no_such_command(argv[2], e);
        o->help_for = argc > 2 ? (enum command)commands[k].command : COMMAND_HELP;
        return 0;
    }
    if (opt_arguments(&options_table, o, (int)o->command, command_name(o->command), argc - 2, argv + 2, &words, given,
                      &help, e) != 0)
        return -1;
    if (help) {
        o->help_for = o->command;
        o->command = COMMAND_HELP;
        return 0;
    }
    return opt_environment(&options_table, o, (int)o->command, given, e);
}

void options_warn_unknown(void)
{
    opt_warn_unknown(&options_table, (const char *const[]){"LOCKSTEP_CLIENT_", "LOCKSTEP_GATEWAY_", NULL});
}

static const struct opt_status statuses[] = {
    {ERR_NONE, "all done"},
    {ERR_REQUEST, "finished, but some prompts or requests failed"},
    {ERR_USAGE, "an option is unknown, missing or out of range"},
    {ERR_INPUT, "a file or a prompt is malformed or contradicts another"},
    {ERR_UNSUPPORTED, "well formed, but not implemented; or quantised weights are damaged"},
    {ERR_IO, "cannot open, read or write"},
    {ERR_MEMORY, "too little memory"},
    {ERR_DEVICE, "a device failed, or logits are not numbers"},
    {ERR_COMM, "MPI or NCCL failed, or a rank is dead or stuck"},
    {ERR_PREFLIGHT, "preflight found an unhealthy node"},
    {ERR_INTERNAL, "internal error: please report it"},
    {ERR_RESUME, "told to end before all was done; the same command continues"},
};

#define N_STATUSES (sizeof statuses / sizeof statuses[0])

static void print_overview(void)
{
    printf("lockstep %s - " SUMMARY "\n\nCommands:\n", LOCKSTEP_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        printf("  %s\n      ", commands[i].usage);
        opt_print_wrapped(commands[i].help, 6, 100);
    }
    printf("\n`lockstep COMMAND --help` lists the options of a command. Each option can also be set in the "
           "environment:\n--max-tokens by LOCKSTEP_MAX_TOKENS. `mpirun -q` of Open MPI 4 omits mpirun's own messages "
           "after a "
           "failure.\n\nExit status, the same on every rank:\n");
    for (size_t i = 0; i < N_STATUSES; i++)
        printf("  %3d  %s\n", statuses[i].code, statuses[i].meaning);
}

static void print_families(void)
{
    char names[FAMILY_NAMES_BYTES], text[FAMILY_NAMES_BYTES + 100];
    int n = family_names(names, sizeof names, NULL);
    (void)snprintf(text, sizeof text, "The %d families that Lockstep knows, by the model_type of config.json: %s.", n,
                   names);
    printf("\n");
    opt_print_wrapped(text, 0, 100);
}

void options_help(enum command command)
{
    if (command == COMMAND_HELP) {
        print_overview();
        return;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].command == (int)command) {
            printf("Usage: %s\n\n", commands[i].usage);
            opt_print_wrapped(commands[i].help, 0, 100);
        }
    if (command == COMMAND_INSPECT)
        print_families();
    opt_print(&options_table, (int)command);
}

void options_book(struct opt_book *b)
{
    *b = (struct opt_book){.table = &options_table,
                           .summary = SUMMARY,
                           .n_commands = N_COMMANDS,
                           .status = statuses,
                           .n_statuses = N_STATUSES};
    memcpy(b->command, commands, sizeof commands);
}
