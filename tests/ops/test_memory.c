/* tests/ops/test_memory.c - the device's memory as seen from the CPU, and weights of noise. */
#include "kernels/pool.h"
#include "kernels/uploads.h"

#include "tests/ops/check.h"

#include "base/clock.h"

#include <pthread.h>

static void up(void *dst, const void *src, size_t bytes)
{
    backend_real_ops()->upload(backend_real_queue(), dst, bytes, src, bytes, bytes, 1);
    backend_real_ops()->wait(backend_real_queue());
}

static void down(void *dst, const void *src, size_t bytes)
{
    backend_real_ops()->download(backend_real_queue(), dst, src, bytes);
    backend_real_ops()->wait(backend_real_queue());
}

static void test_alloc(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    const size_t sizes[] = {0, 1, 255, 256, 257, 100000, 9 << 20};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        void *p = real->alloc(q, sizes[k]);
        unsigned char *seen = zeroed(sizes[k], 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        memset(seen, 0xCD, sizes[k]);
        down(seen, p, sizes[k]);
        for (size_t i = 0; i < sizes[k]; i++)
            assert_int_equal(seen[i], 0);
        memset(seen, 0xAB, sizes[k]);
        up(p, seen, sizes[k]);
        real->free(q, p);
        free(seen);
    }
    real->free(q, NULL);
    real->wait(q);
    assert_int_equal(q->err.code, ERR_NONE);
    assert_null(real->alloc(q, SIZE_MAX - 3));
    assert_int_equal(q->err.code, ERR_MEMORY);
    q->err = (struct err){0};
}

/* Zeros are written only where requested, in the queue's order. */
static void test_clear(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { BYTES = 5000000, FIRST = 12, LAST = BYTES - 7 };
    unsigned char *seen = zeroed(BYTES, 1);
    void *p = real->alloc(q, BYTES);
    memset(seen, 0xAB, BYTES);
    real->upload(q, p, BYTES, seen, BYTES, BYTES, 1);
    real->clear(q, (char *)p + FIRST, LAST - FIRST);
    real->clear(q, (char *)p + 3, 0);
    real->clear(q, NULL, 0);
    down(seen, p, BYTES);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(seen[i], i >= FIRST && i < LAST ? 0 : 0xAB);
    real->free(q, p);
    free(seen);
    assert_int_equal(q->err.code, ERR_NONE);
}

static void test_copy(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { ROWS = 5, SRC = 13, DST = 11, WIDTH = 7 };
    unsigned char src[ROWS * SRC], back[ROWS * DST];
    for (int i = 0; i < ROWS * SRC; i++)
        src[i] = (unsigned char)(i + 1);
    memset(back, 0xEE, sizeof back);
    void *dst = real->alloc(q, sizeof back);
    up(dst, back, sizeof back);
    real->upload(q, dst, DST, src, SRC, WIDTH, ROWS);
    down(back, dst, sizeof back);
    for (int i = 0; i < ROWS * DST; i++)
        assert_int_equal(back[i], i % DST < WIDTH ? src[i / DST * SRC + i % DST] : 0xEE);
    real->upload(q, NULL, 0, NULL, 0, 0, 5);
    real->upload(q, NULL, 4, NULL, 4, 4, 0);
    real->download(q, NULL, NULL, 0);
    real->free(q, dst);
    assert_int_equal(q->err.code, ERR_NONE);
}

/* Pieces of any size and address, in an order of their own, with gaps that keep their bytes. */
static void test_uploads(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { MOST = UPLOADS_MOST, ROOM = 70001 };
    unsigned char *src = zeroed(MOST, ROOM), *back = zeroed(MOST, ROOM);
    unsigned char *dst = real->alloc(q, (size_t)MOST * ROOM);
    bool pinned = real->async != NULL && real->async->host_register(q, src, (size_t)MOST * ROOM);
    for (size_t i = 0; i < (size_t)MOST * ROOM; i++)
        src[i] = (unsigned char)(1 + i % 251);
    for (int n = 0; n <= MOST; n += n < 3 ? 1 : 61) {
        struct uploads u = {.n = n};
        real->clear(q, dst, (size_t)MOST * ROOM);
        for (int i = 0; i < n; i++) {
            u.src[i] = src + (size_t)i * ROOM + i;
            u.dst[i] = dst + (size_t)(n - 1 - i) * ROOM;
            u.bytes[i] = i % 3 == 0 ? (size_t)(1 + i) : ROOM - MOST - (size_t)i;
        }
        upload_all(real, q, &u);
        down(back, dst, (size_t)MOST * ROOM);
        for (int i = 0; i < n; i++) {
            const unsigned char *piece = back + (size_t)(n - 1 - i) * ROOM;
            assert_memory_equal(piece, u.src[i], u.bytes[i]);
            for (size_t k = u.bytes[i]; k < ROOM; k++)
                assert_int_equal(piece[k], 0);
        }
        for (size_t k = (size_t)n * ROOM; k < (size_t)MOST * ROOM; k++)
            assert_int_equal(back[k], 0);
    }
    if (pinned)
        real->async->host_unregister(q, src);
    real->free(q, dst);
    free(src);
    free(back);
    assert_int_equal(q->err.code, ERR_NONE);
}

static void test_transposed(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    const int sizes[] = {0, 1, 3, 31, 33, 77, 1100};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        for (int k = 0; k < 49; k++) {
            int rows = sizes[k / 7], cols = sizes[k % 7], src_ld = cols + 3, dst_ld = rows + 2;
            size_t bytes = dtype_bytes(type), n = (size_t)cols * (size_t)dst_ld;
            if (left_out())
                continue;
            unsigned char *src = zeroed((size_t)rows * (size_t)src_ld, bytes), *dst = zeroed(n, bytes);
            memset(dst, 0xEE, n * bytes);
            for (int i = 0; i < rows * src_ld; i++)
                memcpy(src + i * bytes, &i, bytes); /* the low half for two-byte elements */
            void *there = real->alloc(q, n * bytes);
            up(there, dst, n * bytes);
            real->upload_transposed(q, there, dst_ld, src, src_ld, rows, cols, type);
            down(dst, there, n * bytes);
            for (int c = 0; c < cols; c++) {
                for (int r = 0; r < dst_ld; r++) {
                    int want = r < rows ? r * src_ld + c : (int)0xEEEEEEEE;
                    assert_memory_equal(dst + ((size_t)c * dst_ld + r) * bytes, &want, bytes);
                }
            }
            real->free(q, there);
            free(src);
            free(dst);
        }
    }
}

/* Writes n elements of noise to `to`, whose array is guarded. */
static void make_noise(struct guarded *to, enum dtype type, int rows, int cols, uint64_t seed, int n_threads)
{
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    size_t bytes = (size_t)rows * (size_t)cols * dtype_bytes(type);
    struct weight w = {.data = real->alloc(q, bytes + 64), .type = type, .rows = rows, .cols = cols};
    unsigned char beyond[64] = {1};
    q->n_threads = n_threads;
    up((char *)w.data, to->data, bytes);
    real->fill_noise(q, &w, seed, 1.0f, 0.25f);
    down(to->data, w.data, bytes);
    down(beyond, (char *)w.data + bytes, sizeof beyond);
    for (size_t i = 0; i < sizeof beyond; i++)
        assert_int_equal(beyond[i], 0);
    real->free(q, w.data);
}

static void check_noise(enum dtype type, int n)
{
    struct guarded a = guarded_open(n), b = guarded_open(n);
    double mean = 0, square = 0, low = 1e9, high = -1e9;
    make_noise(&a, type, 1, n, 42, 1); /* the same on every device, including the CPU */
    make_noise(&b, type, n, 1, 42, 2);
    assert_memory_equal(a.data, b.data, (size_t)n * dtype_bytes(type));
    struct weight host = {.data = b.data, .type = type, .rows = n, .cols = 1};
    struct queue cpu = {.n_threads = 1};
    ops_cpu.fill_noise(&cpu, &host, 42, 1.0f, 0.25f);
    assert_memory_equal(a.data, b.data, (size_t)n * dtype_bytes(type));
    for (int i = 0; i < n; i++) {
        double x = dtype_load(a.data, type, i) - 1.0;
        assert_true(fabs(x) <= 0.25);
        mean += x / n;
        square += x * x / n;
        low = fmin(low, x);
        high = fmax(high, x);
    }
    if (n >= 100000) { /* uniform: mean 0, variance scale^2 / 3 */
        assert_true(fabs(mean) < 0.002 && fabs(square - 0.0625 / 3) < 0.0005);
        assert_true(low < -0.249 && high > 0.249);
        make_noise(&b, type, n, 1, 43, 1);
        assert_memory_not_equal(a.data, b.data, (size_t)n * dtype_bytes(type));
    }
    guarded_close(&a);
    guarded_close(&b);
}

/* Checks the mean and the standard deviation of noise, in units of codes. */
static void check_codes_noise(enum codes codes, enum scale_type scale)
{
    const int rows = 333, cols = 640;
    const struct ops *real = backend_real_ops();
    struct weight w = {.rows = rows, .cols = cols, .form = {codes, scale, 32, 0, scale == SCALE_F32}};
    struct queue cpu = {.n_threads = 2};
    size_t bytes = code_bytes(&w.form, rows, cols);
    struct guarded a = guarded_open((int)(bytes / sizeof(float) + 1)),
                   b = guarded_open((int)(bytes / sizeof(float) + 1));
    double mean = 0, square = 0, n = (double)rows * cols;
    memset(a.data, 0, bytes);
    memset(b.data, 0, bytes);
    w.data = real->alloc(backend_real_queue(), bytes);
    up((char *)w.data, b.data, bytes);
    real->fill_noise(backend_real_queue(), &w, 42, 0, 0.25f);
    down(b.data, w.data, bytes);
    real->free(backend_real_queue(), w.data);
    w.data = a.data;
    ops_cpu.fill_noise(&cpu, &w, 42, 0, 0.25f);
    assert_memory_equal(a.data, b.data, bytes);
    for (int i = 0; i < rows * cols; i++) {
        double x = code_element(a.data, &w.form, rows, cols, i / cols, i % cols);
        mean += x / n;
        square += x * x / n;
    }
    assert_true(fabs(mean) < 0.002); /* a uniform number's deviation is 0.14 here, that of the mean 0.0003 */
    assert_true(scale == SCALE_F32 ? fabs(square - 0.0625 / 3) < 0.001
                                   : square > 0.0625 / 12.1 && square < 0.0625 / 2.9);
    guarded_close(&a);
    guarded_close(&b);
}

static void test_codes_noise(void **unused)
{
    (void)unused;
    for (enum codes codes = CODES_E4M3; codes < CODES_COUNT; codes++)
        check_codes_noise(codes, SCALE_F32);
    check_codes_noise(CODES_E2M1, SCALE_E8M0);
}

static void test_noise(void **unused)
{
    (void)unused;
    const int sizes[] = {0, 1, 2, 3, 4, 5, 77, 200001};
    for (int type = 0; type < DTYPE_COUNT; type++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            if (sizes[k] > 0)
                check_noise(type, sizes[k]);
    struct weight none = {.data = NULL, .type = DTYPE_BF16, .rows = 0, .cols = 5};
    backend_real_ops()->fill_noise(backend_real_queue(), &none, 1, 0, 1);
}

/* Returns the xor of all words, whatever the number of blocks that read them. */
static void test_read_stream(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    const size_t words[] = {0, 8, 16, 800, 100008, 3000000};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++) {
        uint64_t state = 77, want = 0, *data = zeroed(words[k], sizeof *data);
        for (size_t i = 0; i < words[k]; i++)
            want ^= data[i] = random_bits(&state);
        void *there = real->alloc(q, words[k] * sizeof *data);
        up(there, data, words[k] * sizeof *data);
        assert_true(real->read_stream(q, there, words[k] * sizeof *data) == want);
        real->free(q, there);
        free(data);
    }
}

#ifdef LOCKSTEP_CUDA
/* Recorded work runs at every launch, not while it is recorded; marks pass in order. */
static void test_graph(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { N = 1000 };
    if (real->async == NULL)
        return;
    size_t bytes = N * dtype_bytes(q->act);
    void *x = real->alloc(q, bytes), *y = real->alloc(q, bytes);
    unsigned char *back = real->async->host_alloc(q, bytes);
    for (size_t i = 0; i < N; i++)
        dtype_store(back, q->act, i, 1);
    up(y, back, bytes);
    real->async->begin_capture(q);
    real->add(q, x, y, N);
    void *graph = real->async->end_capture(q);
    assert_non_null(graph);
    for (int launches = 0; launches < 5; launches++) {
        down(back, x, bytes);
        for (size_t i = 0; i < N; i++)
            assert_true(dtype_load(back, q->act, i) == (float)launches);
        real->async->launch_graph(q, graph);
        real->async->mark(q, launches % 2);
        real->async->wait_mark(q, launches % 2);
    }
    real->async->free_graph(q, graph);
    real->async->host_free(q, back);
    real->free(q, x);
    real->free(q, y);
    assert_int_equal(q->err.code, ERR_NONE);
}

/* A recorded copy reads the current content of pinned memory at each launch, with the rows and columns that it was
 * recorded with. */
static void test_recorded_copies(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { ROWS = 3, SRC = 700, DST = 600, WIDTH = 517 };
    if (real->async == NULL)
        return;
    const size_t word = sizeof(int32_t), bytes = (size_t)ROWS * DST * word;
    int32_t *from = real->async->host_alloc(q, (size_t)ROWS * SRC * word), *back = real->async->host_alloc(q, bytes);
    void *x = real->alloc(q, bytes);
    real->async->begin_capture(q);
    real->upload(q, x, DST * word, from, SRC * word, WIDTH * word, ROWS);
    real->download(q, back, x, bytes);
    void *graph = real->async->end_capture(q);
    assert_non_null(graph);
    for (int launches = 1; launches < 6; launches++) {
        for (int i = 0; i < ROWS * SRC; i++)
            from[i] = i + launches;
        memset(back, 0xEE, bytes);
        real->async->launch_graph(q, graph);
        real->async->mark(q, 0);
        real->async->wait_mark(q, 0);
        for (int i = 0; i < ROWS * DST; i++)
            assert_int_equal(back[i], i % DST < WIDTH ? i / DST * SRC + i % DST + launches : 0);
    }
    real->async->free_graph(q, graph);
    real->async->host_free(q, from);
    real->async->host_free(q, back);
    real->free(q, x);
    assert_int_equal(q->err.code, ERR_NONE);
}

#define MANY 200

/* Stamps before and after one sum, then before and after MANY of them. */
static void stamped_sums(const struct ops *real, struct queue *q, int set, void *x, void *y, size_t n)
{
    real->async->stamp(q, set, 0);
    real->add(q, x, y, n);
    real->async->stamp(q, set, 1);
    for (int i = 0; i < MANY; i++)
        real->add(q, x, y, n);
    real->async->stamp(q, set, 2);
}

/* wall: seconds for everything enqueued since the previous wait. */
static void check_stamps(const struct ops *real, struct queue *q, int set, double wall)
{
    double seconds[2] = {-1, -1};
    real->async->read_stamps(q, set, 3, seconds);
    assert_true(seconds[0] > 0 && seconds[1] > 10 * seconds[0]);
    assert_true(seconds[0] + seconds[1] < wall);
}

/* Stamps record times when they are enqueued, and at every launch of a graph into which they are recorded; two such
 * graphs, each with its own set, may be in flight. */
static void test_stamps(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    enum { N = 1 << 20 };
    if (real->async == NULL)
        return;
    size_t bytes = N * dtype_bytes(q->act);
    void *x = real->alloc(q, bytes), *y = real->alloc(q, bytes), *graph[2];
    assert_int_equal(real->async->open_stamps(q, 3), 0);
    real->add(q, x, y, N); /* the first call loads the operation */
    real->wait(q);
    for (int set = 0; set < 2; set++) {
        double started = seconds_now();
        stamped_sums(real, q, set, x, y, N);
        real->wait(q);
        check_stamps(real, q, set, seconds_now() - started);
        real->async->begin_capture(q);
        stamped_sums(real, q, set, x, y, N);
        graph[set] = real->async->end_capture(q);
        assert_non_null(graph[set]);
    }
    for (int launches = 0; launches < 3; launches++) {
        double started = seconds_now();
        for (int set = 0; set < 2; set++) {
            real->async->launch_graph(q, graph[set]);
            real->async->mark(q, set);
        }
        for (int set = 0; set < 2; set++) {
            real->async->wait_mark(q, set);
            check_stamps(real, q, set, seconds_now() - started);
        }
    }
    for (int set = 0; set < 2; set++)
        real->async->free_graph(q, graph[set]);
    real->async->close_stamps(q);
    real->async->close_stamps(q); /* accepts a closed set */
    real->free(q, x);
    real->free(q, y);
    assert_int_equal(q->err.code, ERR_NONE);
}

struct other_thread {
    struct queue q;
    size_t bytes;
    void *p;
};

static void *take_there(void *context)
{
    struct other_thread *o = context;
    o->p = pool_ops_of(backend_real_ops())->take(&o->q, o->bytes);
    return NULL;
}

/* Memory belongs to the queue's device, whichever thread asks for it: here the last device, which is not a new thread's
 * current one. A single device cannot show it. */
static void test_other_thread(void **unused)
{
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct other_thread o = {.bytes = 64 << 20};
    struct err e = {0};
    pthread_t thread;
    if (real->shares_host_memory)
        return;
    assert_int_equal(real->open(&o.q, real->n_devices() - 1, DTYPE_F32, 1, &e), 0);
    size_t before = real->free_memory(&o.q);
    assert_int_equal(pthread_create(&thread, NULL, take_there, &o), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(o.p);
    assert_true(real->free_memory(&o.q) + o.bytes <= before);
    real->free(&o.q, o.p);
    assert_int_equal(o.q.err.code, ERR_NONE);
    real->close(&o.q);
    (void)real->free_memory(backend_real_queue()); /* makes that queue's device this thread's current one again */
}
#endif

/* Memory of a pool behaves like other memory, and returns to the device when the pool is trimmed. Other processes may
 * take and return memory of the device meanwhile, so one round of many has to show it. From here on all of the queue's
 * memory is the pool's, so this is the last test. */
static void test_pool(void **unused)
{
    enum { BYTES = 64 << 20, SMALL = 1000, ROUNDS = 3, MOST_ROUNDS = 20 };
    (void)unused;
    const struct ops *real = backend_real_ops();
    struct queue *q = backend_real_queue();
    bool returned = real->shares_host_memory; /* the host's pool keeps none */
    unsigned char *seen = zeroed(BYTES, 1), *sent = zeroed(BYTES, 1);
    pool_ops_of(real)->open(q);
    for (int i = 0; i < BYTES; i++)
        sent[i] = (unsigned char)(i * 7 + i / 257);
    for (int round = 0; round < ROUNDS || (!returned && round < MOST_ROUNDS); round++) {
        char *large = pool_ops_of(real)->take(q, BYTES), *small = real->alloc(q, SMALL);
        assert_non_null(large);
        assert_non_null(small);
        assert_int_equal((uintptr_t)large % 256 + (uintptr_t)small % 256, 0);
        up(large, sent, BYTES);
        down(seen, small, SMALL);
        for (int i = 0; i < SMALL; i++)
            assert_int_equal(seen[i], 0);
        up(small, sent + 1, SMALL); /* for the next allocation at this place */
        down(seen, large, BYTES);
        assert_memory_equal(seen, sent, BYTES);
        size_t free_before = real->free_memory(q);
        real->free(q, large);
        real->free(q, small);
        real->wait(q);
        pool_ops_of(real)->trim(q);
        returned = returned || real->free_memory(q) >= free_before + BYTES;
    }
    assert_true(returned);
#ifndef __SANITIZE_ADDRESS__ /* aborts a program that asks for this much */
    assert_null(pool_ops_of(real)->take(q, SIZE_MAX / 2));
    assert_int_equal(q->err.code, ERR_MEMORY);
    q->err = (struct err){0};
#endif
    free(seen);
    free(sent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc),       cmocka_unit_test(test_copy),
        cmocka_unit_test(test_uploads),     cmocka_unit_test(test_transposed),
        cmocka_unit_test(test_noise),       cmocka_unit_test(test_codes_noise),
        cmocka_unit_test(test_read_stream), cmocka_unit_test(test_clear),
#ifdef LOCKSTEP_CUDA
        cmocka_unit_test(test_graph),       cmocka_unit_test(test_recorded_copies),
        cmocka_unit_test(test_stamps),      cmocka_unit_test(test_other_thread),
#endif
        cmocka_unit_test(test_pool),
    };
    return run_everywhere(tests, sizeof tests / sizeof tests[0]);
}
