/* tests/spmd/test_loans.c - engines on the same ranks borrow the collectives and the memory for sums of persistent
 * steps: an engine that comes or goes does not open, close, allocate or free anything that ranks share, and its closing
 * is local. The paper device counts the calls. */
#include "rank/step/engine.h"
#include "rank/world/fatal.h"
#include "tests/support/tap.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_PLACES 3
#define BYTES    4096 /* of a place, for each rank */

static struct {
    int n_shared, n_connected, n_disconnected, n_taken, n_freed; /* taken and freed: allocations */
    int n_host_taken, n_host_freed;
    int n_steps; /* open persistent steps */
    bool refuses;
    void *sums, *attached[PEER_MAX_RANKS];
} paper;

static void *paper_alloc(struct queue *q, size_t bytes)
{
    paper.n_taken++;
    return ops_cpu.alloc(q, bytes);
}

static void paper_free(struct queue *q, void *p)
{
    paper.n_freed += p != NULL;
    ops_cpu.free(q, p);
}

static void *paper_host_alloc(struct queue *q, size_t bytes)
{
    (void)q;
    paper.n_host_taken++;
    return calloc(1, bytes);
}

static void paper_host_free(struct queue *q, void *p)
{
    (void)q;
    paper.n_host_freed += p != NULL;
    free(p);
}

static void free_no_graph(struct queue *q, void *graph)
{
    (void)q;
    if (graph != NULL)
        abort();
}

/* ---- memory of other ranks: addresses without memory ---- */

static bool share(struct queue *q, void *memory, unsigned char handle[PEER_HANDLE_BYTES])
{
    (void)q;
    paper.n_shared++;
    memcpy(handle, &memory, sizeof memory);
    return true;
}

static void *connect_to(struct queue *q, const unsigned char handle[PEER_HANDLE_BYTES])
{
    void *memory = NULL;
    (void)q;
    paper.n_connected++;
    memcpy(&memory, handle, sizeof memory);
    return memory;
}

static void disconnect(struct queue *q, void *memory)
{
    (void)q;
    paper.n_disconnected += memory != NULL;
}

/* ---- persistent steps ---- */

static const char *refusal(struct queue *q, const struct decode_model *m)
{
    (void)q;
    (void)m;
    return paper.refuses ? "this rank of paper" : NULL;
}

static size_t sums_bytes(struct queue *q, int n_ranks)
{
    (void)q;
    return (size_t)n_ranks * BYTES;
}

static void *open_step(struct queue *q, const struct decode_model *m, void *sums)
{
    void **step = calloc(1, sizeof *step);
    (void)q;
    (void)m;
    paper.n_steps++;
    paper.sums = sums;
    *step = sums;
    return step;
}

static void close_step(struct queue *q, void *step)
{
    (void)q;
    paper.n_steps -= step != NULL;
    free(step);
}

static int max_tokens(const void *step)
{
    (void)step;
    return 4;
}

static void *memory_of(void *step)
{
    return *(void **)step;
}

static void attach(struct queue *q, void *step, void *const *memory)
{
    int n = 0;
    (void)q;
    (void)step;
    MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &n));
    memcpy(paper.attached, memory, (size_t)n * sizeof *memory);
}

static const struct async_ops paper_async = {
    .host_alloc = paper_host_alloc, .host_free = paper_host_free, .free_graph = free_no_graph};
static const struct peer_ops paper_peer = {.share = share, .connect = connect_to, .disconnect = disconnect};
static const struct persistent_ops paper_persistent = {.refusal = refusal,
                                                       .sums_bytes = sums_bytes,
                                                       .open = open_step,
                                                       .close = close_step,
                                                       .max_tokens = max_tokens,
                                                       .memory = memory_of,
                                                       .attach = attach};

/* ---- loans, and the engines ---- */

struct ground {
    struct world *w;
    struct ops ops;
    struct queue q;
    struct network network;
    struct comm comm;
    struct persistent_sums sums;
    struct host_pool pool;
};

static void open_ground(struct ground *g, struct world *w)
{
    static const char config[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 256, "
                                 "\"num_attention_heads\": 8, \"num_key_value_heads\": 8, \"num_hidden_layers\": 2, "
                                 "\"vocab_size\": 333, \"max_position_embeddings\": 64}";
    struct err e = {0};
    *g = (struct ground){.w = w, .ops = ops_cpu, .q = {.act = DTYPE_F32, .n_threads = 1}};
    g->ops.alloc = paper_alloc;
    g->ops.free = paper_free;
    g->ops.async = &paper_async;
    g->ops.peer = &paper_peer;
    g->ops.persistent = &paper_persistent;
    struct model_config m;
    struct shard shard;
    (void)model_config_parse(&m, config, sizeof config - 1, "config", &e);
    fatal_agree(w, &e);
    shard_make(&shard, &m, w->rank, w->n_ranks);
    (void)network_open(&g->network, &m, &shard, NULL, false, &ops_cpu, &g->q, &e);
    (void)network_open_kv(&g->network, (const int[KV_KINDS]){12}, 0, &ops_cpu, &g->q, &e);
    fatal_agree(w, &e);
    (void)comm_open(&g->comm, w, &g->ops, &g->q, 1, &e);
    (void)persistent_sums_open(&g->sums, N_PLACES, w, &g->ops, &g->q, &e);
    fatal_agree(w, &e);
    host_pool_open(&g->pool);
}

struct guest {
    struct engine engine;
    struct ground *ground;
    struct queue q;
    int place;
    struct err e;
};

/* Runs on a thread of each rank. */
static void *prepare(void *context)
{
    struct guest *x = context;
    struct ground *g = x->ground;
    const struct limits limits = {
        .max_seqs = 3, .max_batch_tokens = 20, .max_len = 50, .max_logit_rows = 3, .n_blocks = 12};
    const struct engine_loan loan = {&g->comm, persistent_sums_place(&g->sums, x->place), &g->pool};
    struct queue q = g->q;
    (void)engine_prepare(&x->engine, g->w, &g->network, &limits, &loan, STEP_AUTO, &g->ops, &q, &x->e);
    x->engine.q = &x->q;
    return NULL;
}

static void *leave(void *context)
{
    engine_close(&((struct guest *)context)->engine);
    return NULL;
}

static void on_a_thread(void *(*what)(void *), struct guest *x)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, what, x) != 0)
        abort();
    (void)pthread_join(thread, NULL);
}

/* host_pieces: allocations of host memory expected, unless another engine has left one. */
static void come(struct guest *x, struct ground *g, int place, int host_pieces)
{
    struct step_ways ways = {.measured = true};
    int taken = paper.n_taken, host_taken = paper.n_host_taken, freed = paper.n_freed + paper.n_host_freed;
    char reason[80];
    *x = (struct guest){.ground = g, .q = g->q, .place = place};
    on_a_thread(prepare, x);
    fatal_agree(g->w, &x->e);
    (void)snprintf(reason, sizeof reason, "%d and %d", paper.n_taken - taken, paper.n_host_taken - host_taken);
    tap_all(paper.n_taken == taken + 1 && paper.n_host_taken == host_taken + host_pieces, reason,
            "a model makes one allocation of each memory for its steps, %d of the host's new, %d ranks", host_pieces,
            g->w->n_ranks);
    (void)engine_join(&x->engine, &x->q, STEP_AUTO, &ways, &x->e);
    fatal_agree(g->w, &x->e);
    tap_all(paper.n_taken == taken + 1 && paper.n_host_taken == host_taken + host_pieces &&
                paper.n_freed + paper.n_host_freed == freed,
            "memory was taken or freed", "joining the ranks takes and frees no memory, %d ranks", g->w->n_ranks);
}

/* Checks the address of every rank's place, to which it must write. */
static void check_place(const struct ground *g, const struct guest *x)
{
    uintptr_t base = (uintptr_t)g->sums.memory, all[PEER_MAX_RANKS];
    size_t at = (size_t)x->place * (size_t)g->w->n_ranks * BYTES;
    bool right = x->engine.persistent.step != NULL && x->engine.persistent.max_tokens == 4;
    if (g->w->n_ranks == 1) {
        tap_all(right && base == 0 && paper.sums == NULL, "another", "one rank's step has memory of its own");
        return;
    }
    MPI_CHECK(MPI_Allgather(&base, sizeof base, MPI_BYTE, all, sizeof base, MPI_BYTE, g->w->comm));
    for (int r = 0; r < g->w->n_ranks; r++)
        right = right && (uintptr_t)paper.attached[r] == all[r] + at;
    tap_all(right && (uintptr_t)paper.sums == base + at, "another", "a model in place %d uses that place on %d ranks",
            x->place, g->w->n_ranks);
}

static bool sums_right(struct guest *x)
{
    float n = (float)x->ground->w->n_ranks, one = 1;
    comm_all_reduce(&x->engine.comm, &x->q, &one, 1);
    return one == n;
}

/* Models come to places and leave them in another order; nothing shared is opened or closed. */
static void check_coming_and_going(struct ground *g)
{
    struct guest a, b;
    int others = g->w->n_ranks - 1;
    bool sums = true;
    come(&b, g, 2, 1);
    for (int round = 0; round < 3; round++) {
        come(&a, g, round % 2, round == 0);
        check_place(g, &a);
        sums = sums && sums_right(&a) && sums_right(&b);
        if (g->w->rank == round % g->w->n_ranks) /* alone: the others come later */
            on_a_thread(leave, &a);
        sums = sums && sums_right(&b);
        on_a_thread(leave, &a);
    }
    tap_all(sums, "another sum", "sums go on while a model leaves, %d ranks", g->w->n_ranks);
    on_a_thread(leave, &b);
    tap_all(paper.n_shared == (others > 0) && paper.n_connected == others && paper.n_disconnected == 0 &&
                paper.n_steps == 0,
            "more", "memory is shared once for all of them, %d ranks", g->w->n_ranks);
}

/* The last rank fails: then no rank has the model, and the next model finds everything unchanged. */
static void check_refused(struct ground *g)
{
    struct guest x;
    paper.refuses = g->w->rank == g->w->n_ranks - 1;
    come(&x, g, 1, 0);
    tap_all(x.engine.persistent.step == NULL && x.engine.persistent.max_tokens == 0 && paper.n_steps == 0 &&
                x.engine.persistent.why_not[0] != '\0',
            x.engine.persistent.why_not, "a step that one of %d ranks refuses runs on none", g->w->n_ranks);
    on_a_thread(leave, &x);
    paper.refuses = false;
    come(&x, g, 1, 0);
    check_place(g, &x);
    on_a_thread(leave, &x);
}

/* A load that is abandoned before its ranks were joined. */
static void check_given_up(struct ground *g)
{
    struct guest x = {.ground = g, .q = g->q, .place = 0};
    on_a_thread(prepare, &x);
    on_a_thread(leave, &x);
    tap_all(x.e.code == ERR_NONE && paper.n_steps == 0, x.e.text, "a model leaves before its ranks were joined");
}

static void close_ground(struct ground *g)
{
    host_pool_close(&g->pool, &g->ops, &g->q);
    persistent_sums_close(&g->sums, g->w, &g->ops, &g->q);
    comm_close(&g->comm);
    network_close(&g->network, &ops_cpu, &g->q);
    tap_all(paper.n_disconnected == g->w->n_ranks - 1 && paper.n_taken == paper.n_freed &&
                paper.n_host_taken == paper.n_host_freed,
            "memory or a connection is left", "at the end everything is freed, %d ranks", g->w->n_ranks);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct world w;
    struct ground g;
    if (world_open(&w, &argc, &argv, &e) != 0)
        fatal(&e);
    open_ground(&g, &w);
    check_coming_and_going(&g);
    check_refused(&g);
    check_given_up(&g);
    close_ground(&g);
    int status = tap_done();
    world_close(&w);
    return status;
}
