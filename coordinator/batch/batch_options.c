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
     "JSON lines, one request each: a file, a quoted pattern (\"part-*.jsonl\"), or - for standard input; may be given "
     "several times",
     add_input},
    TEXT("output", "FILE", output,
         "append each result as a line as soon as it is there, and go on where an earlier run ended; - is standard "
         "output, which cannot be resumed"),
    FLAG("plain", plain, "compact result lines instead of those of the OpenAI batch API"),
    FLAG("ordered", ordered, "once all is done, rewrite the output in the order of the input"),
    CHOICE("resume", resume, "auto|always|never",
           "what if --output exists: go on with it (default auto); always: it must exist; never: it must not"),
    FLAG("retry-failed", retry_failed,
         "errors that an earlier run has left in the output are taken out of it at the start, and their lines run "
         "again"),
    FLAG("force", force,
         "go on with an output that another model, checkpoint, other sampling defaults or inputs have begun"),
    REAL("sync-seconds", sync_seconds, 0, 3600, -1,
         "results are safe on disk after so many seconds; 0: at once (default 5); --output must be a file"),
    INTEGER("max-inflight", max_inflight, 1, 1 << 20, -1,
            "lines under way at once, those that wait included (default: 4 for each sequence that runs at once)"),
    INTEGER("max-tokens", sampling.max_tokens, 1, 1 << 24, -1,
            "of lines that do not say: tokens to generate at most (default 16, in chats what fits, as OpenAI has it)"),
    INTEGER("min-tokens", sampling.min_tokens, 0, 1 << 24, -1,
            "of lines that do not say: forbid the end before this many tokens (default 0)"),
    REAL("temperature", sampling.temperature, 0, 100, NAN, "of lines that do not say; 0 is greedy (default 1)"),
    INTEGER("top-k", sampling.top_k, -1, 1 << 24, -2, "of lines that do not say; 0 or -1: all (default 0)"),
    REAL("top-p", sampling.top_p, 0, 1, NAN, "of lines that do not say (default 1)"),
    REAL("min-p", sampling.min_p, 0, 1, NAN, "of lines that do not say (default 0)"),
    REAL("repetition-penalty", sampling.repetition_penalty, 0.01, 100, NAN, "of lines that do not say (default 1)"),
    REAL("presence-penalty", sampling.presence_penalty, -2, 2, NAN, "of lines that do not say (default 0)"),
    REAL("frequency-penalty", sampling.frequency_penalty, -2, 2, NAN, "of lines that do not say (default 0)"),
    FLAG("ignore-eos", sampling.ignore_eos, "of lines that do not say: go on after end-of-text tokens"),
    INTEGER("seed", sampling.seed, 0, 9007199254740992.0, 0,
            "of lines without a seed: theirs follows from this and their id, whatever runs beside them (default 0)"),
    TEXT("max-walltime", "TIME", max_walltime,
         "be over so long after the program's start: seconds, MM:SS, HH:MM:SS or D-HH:MM:SS; what does not fit is left "
         "to the next run, exit status 75 (default: until SLURM_JOB_END_TIME, if it is set; the sooner one counts)"),
    REAL("walltime-reserve", walltime_reserve, 0, 86400, -1,
         "seconds of the walltime for ending: syncing, giving memory back (default 3, and twice the slowest sync and "
         "step so far)"),
    INTEGER(
        "drain-seconds", drain_seconds, 0, 1 << 20, -1,
        "after SIGUSR1: time for what has begun to finish (default: what the walltime allows; 60 where none is known)"),
    TEXT("shard", "K/N", shard, "of every N lines do the one with number K, from 0 to N - 1"),
    CHOICE("array-shard", array_shard, "auto|on|off",
           "whether tasks of a Slurm job array share the input by lines (default auto: if --output has {task} or %a, "
           "which becomes the task's number; without it one has to say)"),
    FLAG("requeue-self", requeue_self,
         "at exit status 75 have Slurm queue this job again, if this run has added results and nobody told it to end "
         "(SIGTERM, SIGINT: scancel means it)"),
    INTEGER("max-restarts", max_restarts, 0, 1 << 20, -1,
            "with --requeue-self: do so until the job was queued again so many times (default 20)"),
    REAL("status-seconds", status_seconds, 0, 86400, -1,
         "where no bar is shown, say so often how far the batch is; 0: never (default 60)"),
    TEXT("status-file", "FILE", status_file,
         "replace this file every 5 s with the same as JSON (default: OUTPUT.status.json where that is a file)"),
    FLAG("slurm-comment", slurm_comment, "show it once a minute as the Slurm job's comment (squeue -o %k)"),
};

const struct opt_rows batch_rows = OPT_ROWS(rows);
