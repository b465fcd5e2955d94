/* coordinator/tasks/service_options.c - see service_options.h. */
#include "coordinator/tasks/service_options.h"
#include "base/environment.h"
#include "base/opt_rows.h"

#include <stdio.h>
#include <string.h>

#define SRUN_END_SECONDS 20

#define AT(member) offsetof(struct service_options, member)

static const struct opt rows[] = {
    TEXT("log-dir", "DIR", log_dir,
         "every rank also writes its messages, as with --verbose, to DIR/rank-R.log, with time, host and rank"),
    INTEGER(
        "max-model-len", run.max_model_len, 1, 1 << 28, -1,
        "tokens of one sequence, prompt and output (default: max_position_embeddings of the model, otherwise 2048)"),
    INTEGER("max-batch", run.max_batch, 1, 4096, -1,
            "sequences that run at once, if the KV cache has room (default 1024 on GPUs, 256 on CPUs and with several "
            "models; at most --max-batch-tokens)"),
    INTEGER("max-num-seqs", run.max_batch, 1, 4096, -1, "the same under vLLM's name"),
    TEXT("served-model-name", "NAME", served_name,
         "the model's name to clients (default: the folder's or the repository's)"),
    TEXT("chat-template", "NAME|FILE", chat_template,
         "the chat template for all chats: one of the model's own by its name, or a Jinja file (default: the model's)"),
    {"max-reply-bytes", "BYTES", OPT_BYTES, AT(max_reply_bytes), 1 << 16, (int64_t)1 << 34, 32 << 20, NULL,
     "largest reply to a request, estimated from its tokens and log-probabilities before anything is computed; larger "
     "ones are refused with 413 (default 32M)",
     NULL},
    INTEGER("end-seconds", end_seconds, 0, 1 << 20, -1,
            "the same as --drain-seconds after SIGTERM and SIGINT (default 0, since mpirun kills a second later; under "
            "srun 20)"),
    TEXT("metrics-file", "FILE", metrics_file,
         "replace this file every 5 s with the metrics, for node_exporter's textfile collector"),
};

const struct opt_rows service_rows = OPT_ROWS(rows);

double service_end_seconds(const struct service_options *o)
{
    if (o->end_seconds >= 0)
        return (double)o->end_seconds;
    /* Open MPI's launcher sets the second variable, and only that. */
    bool srun = environment_value("SLURM_STEP_ID") != NULL && environment_value("OMPI_COMM_WORLD_RANK") == NULL;
    return srun ? SRUN_END_SECONDS : 0;
}

void service_model_name(const struct service_options *o, char *name, size_t bytes)
{
    const char *model = o->run.model, *end = model + strlen(model);
    while (end > model + 1 && end[-1] == '/')
        end--;
    const char *begin = end;
    while (begin > model && begin[-1] != '/')
        begin--;
    const char *given = o->served_name != NULL ? o->served_name : o->run.model_name;
    if (given != NULL)
        (void)snprintf(name, bytes, "%s", given);
    else
        (void)snprintf(name, bytes, "%.*s", (int)(end - begin), begin);
}
