/* coordinator/batch/batch_options.c - see batch_options.h. */
#include "coordinator/batch/batch_options.h"
#include "base/opt_rows.h"

#include <math.h>

#define AT(member) offsetof(struct batch_options, member)

static int add_input(void *record, const struct opt *row, const char *text, struct err *e)
{
    struct batch_options *o = record;
    if (o->n_input == BATCH_MAX_INPUT || *text == '\0')
        return ERR(e, ERR_USAGE, "--%s: expected up to %d names or patterns, none empty", row->name, BATCH_MAX_INPUT);
    o->input[o->n_input++] = text;
    return 0;
}

static const struct opt rows[] = {
    {"input", "FILE", OPT_CALL, 0, 0, 0, 0, NULL,
     "JSON lines, one request each: a file, a quoted pattern (\"part-*.jsonl\"), or - for standard input; may be "
     "repeated",
     add_input},
    TEXT("output", "FILE", output,
         "append each result as a line when it is ready, and continue an earlier run's output; - is standard output, "
         "which cannot be resumed"),
    FLAG("plain", plain, "compact result lines instead of those of the OpenAI batch API"),
    FLAG("ordered", ordered, "rewrite the output in the order of the input when all is done"),
    CHOICE("resume", resume, "auto|always|never",
           "whether to continue an existing --output: auto does if it exists (default), always requires it, never "
           "refuses it"),
    FLAG("retry-failed", retry_failed,
         "remove the errors of earlier runs from the output at the start, and run their lines again"),
    FLAG("force", force,
         "continue an output that was made with another model, checkpoint, other sampling defaults or inputs"),
    REAL("sync-seconds", sync_seconds, 0, 3600, -1,
         "results are on disk after this many seconds; 0: at once (default 5); --output must be a file"),
    INTEGER("max-inflight", max_inflight, 1, 1 << 20, -1,
            "lines in progress at once, including waiting ones (default: 4 for each sequence that runs at once)"),
    INTEGER("max-tokens", sampling.max_tokens, 1, 1 << 24, -1,
            "default of lines without it: tokens to generate at most (default 16, in chats as many as fit, as in "
            "OpenAI's API)"),
    INTEGER("min-tokens", sampling.min_tokens, 0, 1 << 24, -1,
            "default of lines without it: forbid the end before this many tokens (default 0)"),
    REAL("temperature", sampling.temperature, 0, 100, NAN, "default of lines without it; 0 is greedy (default 1)"),
    INTEGER("top-k", sampling.top_k, -1, 1 << 24, -2, "default of lines without it; 0 or -1: all (default 0)"),
    REAL("top-p", sampling.top_p, 0, 1, NAN, "default of lines without it (default 1)"),
    REAL("min-p", sampling.min_p, 0, 1, NAN, "default of lines without it (default 0)"),
    REAL("repetition-penalty", sampling.repetition_penalty, 0.01, 100, NAN, "default of lines without it (default 1)"),
    REAL("presence-penalty", sampling.presence_penalty, -2, 2, NAN, "default of lines without it (default 0)"),
    REAL("frequency-penalty", sampling.frequency_penalty, -2, 2, NAN, "default of lines without it (default 0)"),
    FLAG("ignore-eos", sampling.ignore_eos, "default of lines without it: continue after end-of-text tokens"),
    INTEGER(
        "seed", sampling.seed, 0, 9007199254740992.0, 0,
        "seed from which, with their ids, lines without a seed derive theirs, whatever runs beside them (default 0)"),
    TEXT("max-walltime", "TIME", max_walltime,
         "end this long after the program's start: seconds, MM:SS, HH:MM:SS or D-HH:MM:SS; requests that do not fit "
         "are left to the next run, exit status 75 (default: until SLURM_JOB_END_TIME, if it is set; the earlier one "
         "counts)"),
    REAL("walltime-reserve", walltime_reserve, 0, 86400, -1,
         "seconds of the walltime reserved for the end: syncing, freeing memory (default 3, plus twice the slowest "
         "sync and step so far)"),
    INTEGER(
        "drain-seconds", drain_seconds, 0, 1 << 20, -1,
        "after SIGUSR1: seconds for running requests to finish (default: as the walltime allows; 60 if it is unknown)"),
    TEXT("shard", "K/N", shard, "of every N lines process number K, from 0 to N - 1"),
    CHOICE("array-shard", array_shard, "auto|on|off",
           "whether tasks of a Slurm job array share the input by lines (default auto: yes if --output has {task} or "
           "%a, which becomes the task's number; otherwise on or off is required)"),
    FLAG("requeue-self", requeue_self,
         "at exit status 75 have Slurm requeue this job, if this run has added results and did not get SIGTERM or "
         "SIGINT (as from scancel)"),
    INTEGER("max-restarts", max_restarts, 0, 1 << 20, -1, "with --requeue-self: limit of restarts (default 20)"),
    REAL("status-seconds", status_seconds, 0, 86400, -1,
         "without a progress bar, print a status line every X seconds; 0: never (default 60)"),
    TEXT("status-file", "FILE", status_file,
         "replace this file every 5 s with the status as JSON (default: OUTPUT.status.json if the output is a file)"),
    FLAG("slurm-comment", slurm_comment, "show the status once a minute as the Slurm job's comment (squeue -o %k)"),
};

const struct opt_rows batch_rows = OPT_ROWS(rows);
