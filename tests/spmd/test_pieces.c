/* tests/spmd/test_pieces.c - steps whose rows are computed and summed in pieces (rank/model/layer.c): the logits are
 * those of whole steps, bit for bit, for a model of every shape of layer. argv: nothing for CPUs; "cuda" for
 * batch-invariant GPUs, whose pieces' sums run beside products (kernels/beside.h), then nothing or a part of the names
 * of the fixtures to run. */
#include "partition/checkpoint.h"
#include "partition/side_tensors.h"
#include "tests/gpu/side.h"

#define N_SEQS  2
#define MAX_LEN 56 /* positions of the shortest model used here */
#define MOST    48 /* tokens of a step */

static bool on_device;

static void open_fixture(struct side *s, struct world *w, const char *name)
{
    char dir[256];
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(N_SEQS, MAX_LEN, STEP_SEPARATE);
    setup.threads = 1;
    setup.device = on_device ? DEVICE_CUDA : DEVICE_CPU;
    setup.batch_invariant = on_device;
    setup.limits.sum_pieces = w->n_ranks > 1 ? COMM_PIECES : 1;
    (void)snprintf(dir, sizeof dir, "tests/parity/fixtures/%s", name);
    if (w->rank == 0 && model_config_read(&m, dir, &e) == 0 && checkpoint_open(&c, dir, &e) == 0)
        (void)side_tensors_read(&c, &m, &e);
    fatal_agree(w, &e);
    side_open(s, w, &m, &c, &setup);
}

/* Feeds n tokens of each sequence in one step, with all their logits. */
static void feed(struct side *s, const int n[N_SEQS])
{
    int32_t token[MOST];
    for (int seq = 0; seq < N_SEQS; seq++) {
        for (int i = 0; i < n[seq]; i++)
            token[i] = (i * i * 13 + i * 7 + seq * 31 + s->length[seq]) % s->instance.network.config.vocab;
        side_feed(s, seq, token, n[seq], MOST, n[seq], 0);
    }
    side_run(s);
}

/* Returns the number of rows that differ. */
static int differences(struct side *whole, struct side *pieces)
{
    static const int n[][N_SEQS] = {{33, 8}, {2, 1}, {5, 6}, {1, 4}};
    int differ = 0;
    size_t vocab = (size_t)whole->instance.network.config.vocab;
    for (size_t k = 0; k < sizeof n / sizeof n[0]; k++) {
        feed(whole, n[k]);
        feed(pieces, n[k]);
        differ += whole->n_rows != pieces->n_rows || whole->n_rows != n[k][0] + n[k][1];
        for (int row = 0; row < whole->n_rows; row++) {
            const float *a = whole->logits + (size_t)row * vocab, *b = pieces->logits + (size_t)row * vocab;
            differ += !isfinite(side_difference(whole, pieces, row)) || memcmp(a, b, vocab * sizeof *a) != 0;
        }
    }
    return differ;
}

static void check_fixture(struct world *w, const char *name)
{
    struct side whole, pieces;
    open_fixture(&whole, w, name);
    open_fixture(&pieces, w, name);
    struct comm *c = &pieces.instance.engine.comm;
    const struct model_config *m = &pieces.instance.network.config;
    whole.instance.engine.comm.cut.pieces = 1;
    c->cut.rows = 1;
    c->cut.bytes = 1;
    size_t row = (size_t)m->hidden * dtype_bytes(pieces.instance.q.act);
    int n = comm_pieces(c, 3, row), expected = w->n_ranks > 1 && row % 16 == 0 ? 3 : 1;
    int differ = differences(&whole, &pieces);
    char reason[80];
    (void)snprintf(reason, sizeof reason, "%d rows differ, 3 tokens in %d pieces", differ, n);
    tap_all(differ == 0 && n == expected && c->under_way == 0, reason, "%s, %d ranks: logits of steps in pieces", name,
            w->n_ranks);
    tap_all(c->n_all_reduces == whole.instance.engine.comm.n_all_reduces, "another number",
            "%s, %d ranks: a sum counts once", name, w->n_ranks);
    side_close(&whole);
    side_close(&pieces);
}

int main(int argc, char **argv)
{
    static const char *const on_cpus[] = {"llama-14-2-gelu",
                                          "mistral-window",
                                          "gptj-3h",
                                          "neox-parallel",
                                          "cohere2-pattern",
                                          "falcon-sequential-f16",
                                          "bloom-8h",
                                          "opt-350m-noprefix",
                                          "gemma2-6",
                                          "olmo2-5",
                                          "glm4-heads128-f16",
                                          "granite-5",
                                          "gptoss-bf16",
                                          "qwen2moe-6",
                                          "deepseek2-3-yarn",
                                          "llama4-5-interleaved",
                                          "q-fp8-channel",
                                          "q-gptq-order-8-asym",
                                          "q-int8",
                                          "q-w4-moe",
                                          NULL};
    static const char *const on_gpus[] = {"llama-heads64-bf16",
                                          "neox-heads64-bf16",
                                          "qwen2moe-heads64-bf16",
                                          "glm4-heads128-f16",
                                          "deepseek2-heads192-bf16",
                                          "gptoss-heads64-bf16",
                                          "gemma3-heads256-bf16",
                                          "opt-heads64-bf16",
                                          "q-fp8-channel-f16",
                                          "q-w4-g128-bf16",
                                          "llama-mha",
                                          NULL};
    struct err e = {0};
    struct world w;
    on_device = argc > 1 && strcmp(argv[1], "cuda") == 0;
    const char *part = argc > 2 ? argv[2] : "";
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    for (const char *const *name = on_device ? on_gpus : on_cpus; *name != NULL; name++)
        if (strstr(*name, part) != NULL)
            check_fixture(&w, *name);
    int status = tap_done();
    world_close(&w);
    return status;
}
