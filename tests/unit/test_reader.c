/* tests/unit/test_reader.c - rank/load/reader.c: every byte of every block arrives in its slot and stays there until it
 * is released, with any number of threads; a failed read names the file, and earlier blocks are still delivered. */
#include "tests/unit/unit.h"

#include "rank/load/reader.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <stdlib.h>

#define N_FILES     3
#define FILE_BYTES  (9 << 20)
#define BLOCK_BYTES ((size_t)3 << 20)
#define MAX_BLOCKS  64

static struct checkpoint checkpoint;
static char text[N_FILES][32];
static uint32_t name[N_FILES];
static unsigned char *content[N_FILES];
static struct read_block block[MAX_BLOCKS];
static struct read_plan plan = {.block = block, .max_block_bytes = BLOCK_BYTES};

/* Turns every third block that is large enough into one of rows. */
static void take_rows(struct read_block *b, uint64_t *random)
{
    if (plan.n_blocks % 3 != 0 || b->bytes < 20000)
        return;
    b->width = 200 + (size_t)random_below(random, 5000);
    b->gap = 1 + (size_t)random_below(random, plan.n_blocks % 2 == 0 ? 5 : 5000);
    b->bytes = b->bytes / (b->width + b->gap) * b->width;
}

/* Makes files of noise, divided into blocks of many sizes, with some gaps between them. */
static int make_files(void **state)
{
    uint64_t random = 5;
    (void)state;
    files_make_dir(checkpoint.dir);
    for (int f = 0; f < N_FILES; f++) {
        (void)snprintf(text[f], sizeof text[f], "f%d.safetensors", f);
        name[f] = (uint32_t)(f * sizeof text[0]);
        content[f] = malloc(FILE_BYTES);
        for (size_t i = 0; i < FILE_BYTES; i += 8) {
            uint64_t x = random_next(&random);
            memcpy(content[f] + i, &x, 8);
        }
        files_write(checkpoint.dir, text[f], content[f], FILE_BYTES);
        for (size_t at = (size_t)random_below(&random, 100); at < FILE_BYTES && plan.n_blocks < MAX_BLOCKS;) {
            size_t bytes = 1 + (size_t)random_below(&random, plan.n_blocks % 4 == 0 ? 1000 : (int)BLOCK_BYTES);
            bytes = at + bytes < FILE_BYTES ? bytes : FILE_BYTES - at;
            block[plan.n_blocks] = (struct read_block){.file = f, .offset = at, .bytes = bytes};
            take_rows(&block[plan.n_blocks++], &random);
            at += bytes + (size_t)random_below(&random, 50);
        }
    }
    checkpoint.n_files = N_FILES;
    checkpoint.file = name;
    checkpoint.text = text[0];
    return plan.n_blocks > 10 && plan.n_blocks < MAX_BLOCKS ? 0 : -1;
}

static int remove_files(void **state)
{
    (void)state;
    for (int f = 0; f < N_FILES; f++)
        free(content[f]);
    files_remove_dir(checkpoint.dir);
    return 0;
}

static int n_slots = READER_MIN_SLOTS;
static size_t piece_bytes = (size_t)1 << 20;
static double spin;
static _Atomic int ready[READER_MAX_SLOTS];

static struct reader_setup make_setup(int first, int stride, int n_threads)
{
    struct reader_setup s = {.c = &checkpoint,
                             .plan = &plan,
                             .first = first,
                             .stride = stride,
                             .n_slots = n_slots,
                             .ready = ready,
                             .n_threads = n_threads,
                             .piece_bytes = piece_bytes,
                             .spin = spin};
    for (int i = 0; i < n_slots; i++)
        s.bytes[i] = malloc(BLOCK_BYTES);
    return s;
}

static void free_setup(struct reader_setup *s)
{
    for (int i = 0; i < s->n_slots; i++)
        free(s->bytes[i]);
}

static uint64_t end_of(const struct read_block *b)
{
    return b->offset + b->bytes + (b->gap > 0 ? (b->bytes / b->width - 1) * b->gap : 0);
}

static void check_block(const struct read_block *b, const unsigned char *got)
{
    const unsigned char *want = content[b->file] + b->offset;
    if (b->gap == 0) {
        assert_memory_equal(got, want, b->bytes);
        return;
    }
    for (size_t row = 0; row < b->bytes / b->width; row++)
        assert_memory_equal(got + row * b->width, want + row * (b->width + b->gap), b->width);
}

/* Reads as rank `first` of `stride`, releasing two blocks late as rank/load/load_together.c does. Returns the number of
 * blocks delivered. */
static int read_all(int first, int stride, int n_threads, struct err *e, uint64_t *bytes_read)
{
    struct reader r;
    struct reader_setup setup = make_setup(first, stride, n_threads);
    int k = 0, n = plan.n_blocks > first ? (plan.n_blocks - first + stride - 1) / stride : 0;
    assert_int_equal(reader_open(&r, &setup, e), 0);
    for (; k < n && reader_wait(&r, k, e) == 0; k++) {
        for (int old = k - 1 > 0 ? k - 1 : 0; old <= k; old++) /* the previous block must still be there */
            check_block(&block[first + old * stride], setup.bytes[old % setup.n_slots]);
        reader_release(&r, k - 1);
    }
    reader_close(&r);
    *bytes_read = r.bytes_read;
    free_setup(&setup);
    return k;
}

static void all_bytes(void **state)
{
    static const int threads[] = {1, 2, 5, 16, 40};
    (void)state;
    for (int stride = 1; stride <= 5; stride += 2)
        for (size_t t = 0; t < sizeof threads / sizeof threads[0]; t++)
            for (int first = 0; first < stride; first++) {
                struct err e = {0};
                uint64_t want = 0, got = 0;
                int n = 0;
                for (int b = first; b < plan.n_blocks; b += stride, n++)
                    want += block[b].bytes;
                assert_int_equal(read_all(first, stride, threads[t], &e, &got), n);
                expect_none(&e);
                assert_true(got == want); /* once */
            }
    struct err e = {0};
    uint64_t got = 1;
    assert_int_equal(read_all(plan.n_blocks + 1, 100, 2, &e, &got), 0); /* a rank without any block */
    assert_true(got == 0);
}

/* The same with other windows and pieces, sleeping and spinning: neither may change the data. */
static void other_windows(void **state)
{
    static const struct {
        int slots;
        size_t piece;
        double spin;
    } cases[] = {{READER_MIN_SLOTS, 64 << 10, 0},
                 {7, 1 << 20, 1e-3},
                 {READER_MAX_SLOTS, (64 << 10) + 1, 1e-4},
                 {16, (size_t)16 << 20, 1e-2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        n_slots = cases[i].slots;
        piece_bytes = cases[i].piece;
        spin = cases[i].spin;
        all_bytes(state);
    }
    n_slots = READER_MIN_SLOTS;
    piece_bytes = (size_t)1 << 20;
    spin = 0;
}

/* The second file ends early: data before its end is delivered, then the file and the byte are named. */
static void short_file(void **state)
{
    (void)state;
    size_t end = FILE_BYTES / 2;
    int n_whole = 0;
    files_write(checkpoint.dir, text[1], content[1], end);
    while (block[n_whole].file == 0 || (block[n_whole].file == 1 && end_of(&block[n_whole]) <= end))
        n_whole++;
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        struct err e = {0};
        uint64_t got = 0;
        int n = read_all(0, 1, n_threads, &e, &got);
        assert_true(n <= n_whole && (n_threads > 1 || n == n_whole));
        EXPECT_PARTS(&e, ERR_IO, "f1.safetensors: read at byte ", "end of file, expected ", " more bytes");
    }
    files_write(checkpoint.dir, text[1], content[1], FILE_BYTES);
}

static void missing_file(void **state)
{
    char path[5000];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/%s", checkpoint.dir, text[2]);
    assert_int_equal(remove(path), 0);
    struct err e = {0};
    uint64_t got = 0;
    int n_whole = 0;
    while (block[n_whole].file < 2)
        n_whole++;
    assert_true(read_all(0, 1, 3, &e, &got) <= n_whole);
    EXPECT_PARTS(&e, ERR_IO, "f2.safetensors: cannot open: No such file");
    files_write(checkpoint.dir, text[2], content[2], FILE_BYTES);
}

/* Closes while threads wait for room, or read. */
static void closed_early(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        struct reader r;
        struct err e = {0};
        spin = round % 3 == 0 ? 1e-3 : 0;
        struct reader_setup setup = make_setup(0, 1, 4);
        assert_int_equal(reader_open(&r, &setup, &e), 0);
        if (round % 2 == 0)
            assert_int_equal(reader_wait(&r, n_slots - 1, &e), 0);
        reader_close(&r);
        free_setup(&setup);
    }
    struct reader none = {0};
    reader_close(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_bytes), cmocka_unit_test(other_windows),
                                       cmocka_unit_test(short_file), cmocka_unit_test(missing_file),
                                       cmocka_unit_test(closed_early)};
    return cmocka_run_group_tests_name("reader", tests, make_files, remove_files);
}
