/* tests/gpu/test_persistent_long.c - models with latent attention, whose decode steps run as one operation until one of
 * their sequences has too many tokens (persistent_step.longest), and as separate operations from then on: every logit
 * before and after the switch, against separate operations throughout, on as many ranks as mpirun gives; and the way
 * each step ran. The switch is at the number of tokens that models have, and at lower ones. argv: a part of the names
 * of the models to run. */
#include "kernels/cuda/cuda.h"
#include "tests/gpu/noise.h"
#include "tests/gpu/side.h"

#define MAX_LEN (LATENT_LONGEST + 64)
#define N_SEQS  6

/* All experts are chosen, so that no router can choose others. */
#define LATENT(family, heads, rest)                                                              \
    "{\"model_type\":\"" family "\",\"torch_dtype\":\"bfloat16\",\"num_attention_heads\":" heads \
    ",\"q_lora_rank\":null,\"num_hidden_layers\":3,\"n_routed_experts\":6,\"num_experts_per_tok\":6," rest "}"

static const struct subject {
    const char *name, *json;
} models[] = {
    {"deepseek_v2, first layer dense",
     LATENT("deepseek_v2", "8",
            "\"vocab_size\":700,\"hidden_size\":1024,\"intermediate_size\":1280,\"moe_intermediate_size\":256,"
            "\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"routed_scaling_factor\":1.5,"
            "\"max_position_embeddings\":8192")},
    {"deepseek_v3, halves rotated",
     LATENT("deepseek_v3", "4",
            "\"vocab_size\":801,\"hidden_size\":512,\"moe_intermediate_size\":128,\"n_group\":1,\"topk_group\":1,"
            "\"rope_interleave\":false,\"first_k_dense_replace\":0,\"max_position_embeddings\":8192")},
};

/* A switch between the ways: two sequences, one of which reaches it, and one that stays shorter. */
static const struct change {
    int longest, longer, shorter; /* tokens, then of the prompts */
} changes[] = {{100, 97, 40}, {1040, 1037, 1000}, {LATENT_LONGEST, LATENT_LONGEST - 3, 2500}};

/* Steps that run one after the other, and their sequences. A kind of step that was not recorded at start runs twice
 * without a graph, once for each flight. */
static const struct steps {
    bool longer, shorter;
    int n;
} steps[] = {{true, false, 3}, {true, true, 1}, {false, true, 2}, {true, true, 5}, {true, false, 6}, {false, true, 2}};

static void open_dummy(struct side *s, struct world *w, const struct subject *what, enum step_choice step)
{
    struct err e = {0};
    struct model_config m = {0};
    struct checkpoint c = {0};
    struct instance_setup setup = side_setup(N_SEQS, MAX_LEN, step);
    setup.dummy = 1;
    setup.dummy_seed = 3;
    if (w->rank == 0)
        (void)model_config_parse(&m, what->json, strlen(what->json), "config", &e);
    fatal_agree(w, &e);
    side_open(s, w, &m, &c, &setup);
    noise_vary(s, w->rank);
}

/* Adds the next n tokens of a sequence to the plan. */
static void feed(struct side *s, int seq, int n, int prompt, bool decode)
{
    int32_t token[MAX_LEN];
    for (int i = 0; i < n; i++)
        token[i] = (seq * 131 + (s->length[seq] + i) * 7919 + 11) % s->instance.network.config.vocab;
    side_feed(s, seq, token, n, prompt, decode, decode);
}

static void prefill(struct side *s, int seq, int prompt)
{
    int most = side_most_tokens(s);
    while (s->length[seq] < prompt) {
        int left = prompt - s->length[seq];
        feed(s, seq, left < most ? left : most, prompt, false);
        side_run(s);
    }
}

/* Returns the number of steps that the persistent operation has done so far. */
static uint32_t count_persistent(struct side *s)
{
    struct engine *g = &s->instance.engine;
    uint32_t n = 0;
    int n_blocks;
    const uint32_t *count = cuda_persistent_steps(g->q, g->persistent.step, &n_blocks);
    g->ops->download(g->q, &n, count, sizeof n);
    g->ops->wait(g->q);
    return n;
}

/* The observations of one switch. */
struct seen {
    double worst;             /* of all rows */
    int persistent, separate; /* steps */
    int wrong;                /* steps that ran the other way than expected */
};

/* Runs a step of `of`'s sequences, the two from `first` on. */
static void try_step(struct side *a, struct side *b, const struct steps *of, const struct change *c, int first,
                     struct seen *seen)
{
    const bool joins[2] = {of->longer, of->shorter};
    bool is_long = false;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        if (!joins[i])
            continue;
        is_long = is_long || b->length[first + i] >= c->longest;
        feed(a, first + i, 1, i == 0 ? c->longer : c->shorter, true);
        feed(b, first + i, 1, i == 0 ? c->longer : c->shorter, true);
        n++;
    }
    uint32_t before = count_persistent(b);
    side_run(a);
    side_run(b);
    bool persistent = count_persistent(b) != before;
    seen->persistent += persistent;
    seen->separate += !persistent;
    seen->wrong += persistent == is_long;
    for (int row = 0; row < n; row++)
        seen->worst = fmax(seen->worst, side_difference(a, b, row));
}

static void check_change(struct side *a, struct side *b, const char *name, const struct change *c, int first)
{
    const struct world *w = b->instance.engine.world;
    double most = w->n_ranks > 2 ? 2.5e-2 : 2e-2; /* as in test_persistent.c */
    struct seen seen = {0};
    char reason[120];
    prefill(a, first, c->longer), prefill(a, first + 1, c->shorter);
    prefill(b, first, c->longer), prefill(b, first + 1, c->shorter);
    b->instance.engine.persistent.longest = c->longest;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        for (int k = 0; k < steps[i].n; k++)
            try_step(a, b, &steps[i], c, first, &seen);
    snprintf(reason, sizeof reason, "relative error is %.3g, allowed %.1g", seen.worst, most);
    tap_all(seen.worst <= most, reason, "%s: more than %d tokens on %d rank%s (%.1e)", name, c->longest, w->n_ranks,
            w->n_ranks == 1 ? "" : "s", seen.worst);
    snprintf(reason, sizeof reason, "%d the other way", seen.wrong);
    tap_all(seen.wrong == 0 && seen.persistent > 0 && seen.separate > 0, reason,
            "%s: more than %d tokens, %d steps as one operation and %d as separate ones", name, c->longest,
            seen.persistent, seen.separate);
}

static void check_model(struct world *w, const struct subject *what)
{
    struct side a, b;
    open_dummy(&a, w, what, STEP_SEPARATE);
    open_dummy(&b, w, what, STEP_PERSISTENT);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        check_change(&a, &b, what->name, &changes[i], 2 * (int)i);
    side_close(&a);
    side_close(&b);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    const char *part = argc > 1 ? argv[1] : "";
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strstr(models[i].name, part) != NULL)
            check_model(&w, &models[i]);
    int status = tap_done();
    world_close(&w);
    return status;
}
