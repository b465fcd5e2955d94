/* tests/gpu/test_in_vain.c - devices that wait in vain end the job with one line and the documented status, in the
 * documented time: the persistent kernels for their own results, and for another rank's; a sum over peer memory for
 * another rank's part, also one of a piece that runs beside products; NCCL, when its own threads report an error; steps
 * that are timed at start, when another rank's device has failed. argv: the most ranks (1); "pieces": that case alone.
 * As "child own", "child wide", "child own experts", "child other", "child other experts", "child sum", "child piece"
 * or "child stopped" the program is the job: an engine with a step that cannot end. */
#include "kernels/beside.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/persistent_any.h"
#include "rank/watch/watch.h"
#include "tests/gpu/side.h"
#include "tests/support/cases.h"
#include "tests/support/process.h"

#include <limits.h>
#include <signal.h>
#include <unistd.h>

#define MODEL(family, rest)                                                                                          \
    "{\"model_type\":\"" family "\",\"vocab_size\":512,\"hidden_size\":512,\"intermediate_size\":1024,\"num_hidden_" \
    "layers\":"                                                                                                      \
    "3,\"num_attention_heads\":8,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"torch_dtype\":\"bfloat16\"" rest  \
    "}"
#define DENSE   MODEL("llama", "")
#define MIXTURE MODEL("mixtral", ",\"head_dim\":128,\"num_local_experts\":4,\"num_experts_per_tok\":2")

/* ---- the job ---- */

static void open_child(struct side *s, struct world *w, const char *model, enum step_choice step, double step_timeout,
                       int n_seqs)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(n_seqs, 64, step);
    setup.dummy = 1;
    setup.step_timeout = step_timeout;
    setup.limits.sum_pieces = w->n_ranks > 1 ? COMM_PIECES : 1;
    if (w->rank == 0)
        (void)model_config_parse(&m, model, strlen(model), "config", &e);
    fatal_agree(w, &e);
    side_open(s, w, &m, &c, &setup);
}

/* Puts a block into another step than all the others. */
static void lose_step(struct side *s)
{
    const uint32_t wrong = 1000000;
    struct engine *g = &s->instance.engine;
    int n_blocks;
    uint32_t *count = cuda_persistent_steps(g->q, g->persistent.step, &n_blocks);
    g->ops->upload(g->q, count + 5, sizeof wrong, &wrong, sizeof wrong, sizeof wrong, 1);
    g->ops->wait(g->q);
}

/* Rank 0 begins the sum of a piece and waits for it, the other one does nothing. */
static int sum_piece(struct side *s, int rank)
{
    struct engine *g = &s->instance.engine;
    while (rank == 1) /* ended from outside */
        (void)pause();
    const size_t n = (size_t)g->network->config.hidden;
    cuda_beside_patience(g->q, 20000000);
    comm_begin_sum(&g->comm, g->q, 0, 2, g->act.partial, n);
    comm_end_sum(&g->comm, g->q, 0);
    g->ops->wait(g->q);
    if (g->q->err.code != ERR_NONE)
        fatal(&g->q->err);
    printf("the step has ended\n");
    return 0;
}

static int child(const char *kind, int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct side s;
    const int32_t token[] = {1, 2, 3, 4};
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    bool piece = strcmp(kind, "piece") == 0, sum = strcmp(kind, "sum") == 0, wide = strcmp(kind, "wide") == 0;
    bool own = wide || strcmp(kind, "own") == 0 || strcmp(kind, "own experts") == 0;
    int n_seqs = wide ? 12 : 1; /* 12 is more than the narrow kernel takes */
    open_child(&s, &w, strstr(kind, "experts") != NULL ? MIXTURE : DENSE,
               sum || piece ? STEP_SEPARATE : STEP_PERSISTENT, strcmp(kind, "stopped") == 0 ? 4 : 0, n_seqs);
    if (piece)
        return sum_piece(&s, w.rank);
    if (sum)
        cuda_peer_patience(&s.instance.q, 20000000);
    else if (strcmp(kind, "stopped") != 0)
        cuda_any_patience(&s.instance.q, 20000000, 60000000); /* about 7 s each, not minutes */
    for (int seq = 0; seq < n_seqs; seq++)
        side_feed(&s, seq, token, 3, 3, 0, false);
    side_run(&s);
    for (int seq = 0; seq < n_seqs; seq++)
        side_feed(&s, seq, token + 3, 1, 3, 1, true);
    if (own)
        lose_step(&s);
    observers_tell(&s.instance.engine.observers, next_step, RANK_WORKS, 7);
    if (strcmp(kind, "stopped") == 0 && w.rank == 1)
        (void)raise(SIGSTOP);
    if ((sum || strstr(kind, "other") != NULL) && w.rank == 1)
        for (;;) /* never reaches its step; ended from outside */
            (void)pause();
    struct step_result result;
    engine_submit(&s.instance.engine, &s.plan); /* without loop_share: all ranks have the same plan */
    observers_tell(&s.instance.engine.observers, activity, RANK_AWAITS_DEVICE);
    engine_take(&s.instance.engine, &result);
    printf("the step has ended\n");
    return 0;
}

/* ---- the test ---- */

/* Checks that standard error has exactly one line of the job. */
static bool one_line(const char *text, const char *begin, const char *end)
{
    const char *line = strstr(text, "lockstep: fatal: ");
    if (line == NULL || strstr(line + 1, "lockstep: fatal: ") != NULL)
        return false;
    const char *b = strstr(line, begin), *newline = strchr(line, '\n'), *f = strstr(line, end);
    return b != NULL && f != NULL && newline != NULL && b < newline && f < newline;
}

static void check_end(const struct process *p, int status, double from, double to, const char *begin, const char *end)
{
    case_check(p->status == status, "status %d, expected %d", p->status, status);
    case_check(one_line(p->text[PROCESS_ERR], begin, end), "expected one line with \"%s ... %s\": %s", begin, end,
               p->text[PROCESS_ERR]);
    case_check(p->seconds >= from && p->seconds <= to, "after %.1f s, expected %.0f to %.0f", p->seconds, from, to);
    case_check(p->n_left == 0, "%d processes were left", p->n_left);
    printf("# %.1f s: %s", p->seconds, p->text[PROCESS_ERR]);
}

static void check_own(const char *kind)
{
    struct process p;
    process_run(&p, &(struct process_setup){.program = "tests/gpu/test_in_vain", .ranks = 1, .limit = 150},
                (const char *[]){"child", kind, NULL});
    case_begin("persistent step: a block that never arrives (%s), on cuda", kind);
    case_check(strstr(p.text[PROCESS_OUT], "has ended") == NULL, "the step ended");
    check_end(&p, 7, 4, 60, "lockstep: fatal: GPU 0", "waited in vain for its own results");
    case_end();
    process_free(&p);
}

/* kind: of the child; what: waits. */
static void check_other(const char *kind, const char *name, const char *what)
{
    struct process p;
    process_run(&p, &(struct process_setup){.program = "tests/gpu/test_in_vain", .ranks = 2, .limit = 100},
                (const char *[]){"child", kind, NULL});
    case_begin("%s: a rank that never arrives, on cuda", name);
    case_check(strstr(p.text[PROCESS_OUT], "has ended") == NULL, "the step ended");
    check_end(&p, 8, 4, 60, "lockstep: fatal: rank 0/2 on ", what);
    case_end();
    process_free(&p);
}

static void check_piece(void)
{
    check_other("piece", "sum of a piece beside products",
                "a sum over the ranks waited in vain for the data of rank 1's GPU");
}

/* The step's deadline expires before the kernel's own patience. */
static void check_stopped(void)
{
    struct process p;
    process_run(&p, &(struct process_setup){.program = "tests/gpu/test_in_vain", .ranks = 2, .limit = 60},
                (const char *[]){"child", "stopped", NULL});
    case_begin("persistent step: a rank that is stopped, --step-timeout 4, on cuda");
    check_end(&p, 8, 3, 20, "lockstep: fatal: rank 1/2 on ",
              "step 7 has made no progress for 4 s (--step-timeout): no sign");
    case_end();
    process_free(&p);
}

/* Makes LD_PRELOAD of tests/NAME beside the binary, which LOCKSTEP_BINARY names. */
static void set_preload(char *preload, size_t bytes, const char *name)
{
    char path[PATH_MAX];
    const char *lockstep = getenv("LOCKSTEP_BINARY");
    if (lockstep == NULL || realpath(lockstep, path) == NULL)
        exit(98);
    *strrchr(path, '/') = '\0';
    (void)snprintf(preload, bytes, "LD_PRELOAD=%s/tests/%s", path, name);
}

/* NCCL reports a lost rank while the others compute: tests/gpu/fail_nccl.c simulates it. */
static void check_nccl(void)
{
    struct process p;
    static char prompts[5 * 4000 + 1];
    char preload[PATH_MAX + 40], model[PATH_MAX];
    set_preload(preload, sizeof preload, "fail_nccl.so");
    if (realpath("demo/lockstep-stories", model) == NULL)
        exit(98);
    for (size_t i = 0; i < sizeof prompts - 1; i++) /* more than can be done in the time */
        prompts[i] = "Once\n"[i % 5];
    const char *const env[] = {preload, "FAIL_NCCL_RANK=1", NULL};
    process_run(&p, &(struct process_setup){.ranks = 2, .env = env, .input = prompts, .limit = 60},
                (const char *[]){"generate", "--model", model, "--prompts", "-", "--device", "cuda", "--max-batch", "1",
                                 "--max-tokens", "900", "--ignore-eos", NULL});
    case_begin("an error of NCCL's own threads, on cuda");
    check_end(&p, 8, 0, 40, "lockstep: fatal: rank 1/2 on ", "NCCL: remote process exited");
    case_end();
    process_free(&p);
}

/* A device fails while steps are timed at start, so that the other one waits for it: tests/gpu/fail_graph.c simulates
 * it. */
static void check_graphs(void)
{
    struct process p;
    char preload[PATH_MAX + 40], config[PATH_MAX];
    set_preload(preload, sizeof preload, "fail_graph.so");
    if (realpath("tests/parity/fixtures/llama-heads64-bf16/config.json", config) == NULL)
        exit(98);
    const char *const env[] = {preload, "FAIL_GRAPH_RANK=1", NULL};
    process_run(&p, &(struct process_setup){.ranks = 2, .env = env, .limit = 100},
                (const char *[]){"bench", "--config", config, "--load-format", "dummy", "--device", "cuda", "--step",
                                 "persistent", "--n-prompt", "0", "--n-gen", "4", NULL});
    case_begin("a device that fails while steps are timed, on cuda");
    check_end(&p, 7, 0, 15, "lockstep: fatal: rank 1/2 on ", "illegal memory access");
    case_end();
    process_free(&p);
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 2 && strcmp(argv[1], "child") == 0)
        return child(argv[2], argc, argv);
    if (argc > 2 && strcmp(argv[2], "pieces") == 0) {
        check_piece();
        return cases_done();
    }
    check_own("own");
    check_own("wide");
    check_own("own experts");
    if (most > 1) {
        check_other("other", "persistent step", "decode step waited in vain for the data of rank 1's GPU");
        check_other("other experts", "persistent step of experts",
                    "decode step waited in vain for the data of rank 1's GPU");
        check_other("sum", "sum over peer memory", "a sum over the ranks waited in vain for the data of rank 1's GPU");
        check_piece();
        check_stopped();
        check_nccl();
        check_graphs();
    }
    return cases_done();
}
