/* tests/unit/test_cached.c - rank/load/cached.c: files in memory are recognised; for a file on a disk the first byte of
 * each of a rank's blocks is requested, by reads that may not wait; files that cannot be opened count as missing. The
 * system's answers are the test's own (preadv2 below): a real disk may read a page while it is asked whether the page
 * is cached. */
#include "tests/unit/unit.h"

#include "rank/load/cached.h"
#include "tests/support/files.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BLOCK    ((size_t)4096)
#define N_BLOCKS 8

static char text[] = "f.safetensors";
static uint32_t name;
static struct read_block block[N_BLOCKS];
static const struct read_plan plan = {.n_blocks = N_BLOCKS, .block = block};
static struct checkpoint checkpoint = {.n_files = 1, .file = &name, .text = text};

/* Writes the file in checkpoint.dir. */
static void make_file(void)
{
    char *bytes = calloc(N_BLOCKS, BLOCK);
    for (int i = 0; i < N_BLOCKS; i++)
        block[i] = (struct read_block){.offset = (uint64_t)i * BLOCK, .bytes = BLOCK};
    files_write(checkpoint.dir, text, bytes, N_BLOCKS * BLOCK);
    free(bytes);
}

static bool is_tmpfs(const char *dir)
{
    struct statfs s;
    return statfs(dir, &s) == 0 && s.f_type == TMPFS_MAGIC;
}

/* Replaces the C library's preadv2. */
static struct {
    int refusal;         /* errno for a page that is not cached; 0: all are cached */
    int out;             /* the block whose pages are not cached */
    int n_asked;         /* since the last reset */
    int asked[N_BLOCKS]; /* blocks, in order */
    bool others;         /* any request other than a non-blocking one of a block's first byte? */
} disk;

ssize_t preadv2(int fd, const struct iovec *to, int n, off_t offset, int flags)
{
    (void)fd;
    int b = (int)(offset / (off_t)BLOCK);
    disk.others |= n != 1 || to->iov_len != 1 || offset % (off_t)BLOCK != 0 || b >= N_BLOCKS || flags != RWF_NOWAIT;
    if (disk.n_asked < N_BLOCKS)
        disk.asked[disk.n_asked++] = b;
    if (disk.refusal != 0 && b == disk.out) {
        errno = disk.refusal;
        return -1;
    }
    return 1;
}

static void in_memory(void **state)
{
    (void)state;
    if (!is_tmpfs("/dev/shm"))
        skip();
    (void)snprintf(checkpoint.dir, sizeof checkpoint.dir, "/dev/shm/lockstep-cached-%d", (int)getpid());
    assert_int_equal(mkdir(checkpoint.dir, 0700), 0);
    make_file();
    bool found = cached_blocks(&checkpoint, &plan, 0, 1);
    files_remove_dir(checkpoint.dir);
    assert_true(found);
    assert_false(cached_blocks(&checkpoint, &plan, 0, 1));       /* the file has been removed */
    assert_true(cached_blocks(&checkpoint, &plan, N_BLOCKS, 1)); /* none are requested */
}

static bool ask(int refusal, int out, int first, int stride)
{
    memset(&disk, 0, sizeof disk);
    disk.refusal = refusal;
    disk.out = out;
    bool cached = cached_blocks(&checkpoint, &plan, first, stride);
    assert_false(disk.others);
    return cached;
}

/* One uncached page suffices for ranks that request its block; nothing is requested after it. */
static void on_a_disk(void **state)
{
    (void)state;
    files_make_dir(checkpoint.dir);
    if (is_tmpfs(checkpoint.dir)) {
        files_remove_dir(checkpoint.dir);
        skip();
    }
    make_file();
    assert_true(ask(0, 0, 0, 1));
    assert_int_equal(disk.n_asked, N_BLOCKS);
    assert_false(ask(EAGAIN, 2, 0, 1));
    assert_int_equal(disk.n_asked, 3);
    assert_false(ask(EOPNOTSUPP, 2, 2, N_BLOCKS)); /* file systems that do not support it */
    assert_int_equal(disk.n_asked, 1);
    assert_true(ask(EAGAIN, 2, 1, 3));
    assert_int_equal(disk.n_asked, 3);
    assert_int_equal(disk.asked[0], 1);
    assert_int_equal(disk.asked[1], 4);
    assert_int_equal(disk.asked[2], 7);
    files_remove_dir(checkpoint.dir);
    assert_false(ask(0, 0, 0, 1)); /* the file has been removed */
    assert_int_equal(disk.n_asked, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_memory), cmocka_unit_test(on_a_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
