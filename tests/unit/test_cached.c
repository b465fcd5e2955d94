/* tests/unit/test_cached.c - rank/cached.c: files in memory are known as such; a file on a disk is, or is not, as the page
 * cache has it, where the file system can tell; what cannot be opened is not. */
#include "tests/unit/unit.h"

#include "rank/cached.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#define BLOCK    ((size_t)4 << 20) /* more than the pages that the cache may keep or drop as one */
#define N_BLOCKS 8

static char text[] = "f.safetensors";
static uint32_t name;
static struct read_block block[N_BLOCKS];
static const struct read_plan plan = {.n_blocks = N_BLOCKS, .block = block};
static struct checkpoint checkpoint = {.n_files = 1, .file = &name, .text = text};

/* In checkpoint.dir; its path goes to path. */
static int make_file(char path[5000])
{
    char *bytes = calloc(N_BLOCKS, BLOCK);
    for (int i = 0; i < N_BLOCKS; i++)
        block[i] = (struct read_block){.offset = (uint64_t)i * BLOCK, .bytes = BLOCK};
    files_write(checkpoint.dir, text, bytes, N_BLOCKS * BLOCK);
    free(bytes);
    (void)snprintf(path, 5000, "%s/%s", checkpoint.dir, text);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    return fd;
}

static bool reads_at_once(int fd, uint64_t offset)
{
    char byte;
    struct iovec to = {&byte, 1};
    return preadv2(fd, &to, 1, (off_t)offset, RWF_NOWAIT) == 1;
}

/* Of a file of our own, asked without having anything read. */
static bool is_resident(int fd, uint64_t offset)
{
    unsigned char page = 1;
    void *map = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, (off_t)offset);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_int_equal(mincore(map, 1, &page), 0);
    assert_int_equal(munmap(map, 1), 0);
    return page & 1;
}

static void in_memory(void **state)
{
    char path[5000];
    struct statfs s;
    (void)state;
    if (statfs("/dev/shm", &s) != 0 || s.f_type != TMPFS_MAGIC)
        skip();
    (void)snprintf(checkpoint.dir, sizeof checkpoint.dir, "/dev/shm/lockstep-cached-%d", (int)getpid());
    (void)snprintf(path, sizeof path, "mkdir %s", checkpoint.dir);
    assert_int_equal(system(path), 0);
    int fd = make_file(path);
    bool found = cached_blocks(&checkpoint, &plan, 0, 1);
    assert_int_equal(close(fd), 0);
    files_remove_dir(checkpoint.dir);
    assert_true(found);
    assert_false(cached_blocks(&checkpoint, &plan, 0, 1));       /* it is gone */
    assert_true(cached_blocks(&checkpoint, &plan, N_BLOCKS, 1)); /* none are asked for */
}

/* One page out of the cache is enough, for those who ask for its block. */
static void on_a_disk(void **state)
{
    char path[5000];
    (void)state;
    files_make_dir(checkpoint.dir);
    int fd = make_file(path);
    bool tells = reads_at_once(fd, 0);
    struct statfs s;
    bool memory = fstatfs(fd, &s) == 0 && s.f_type == TMPFS_MAGIC;
    bool found = cached_blocks(&checkpoint, &plan, 0, 1);
    assert_int_equal(fdatasync(fd), 0);
    (void)posix_fadvise(fd, 2 * BLOCK, BLOCK, POSIX_FADV_DONTNEED);
    bool kept = is_resident(fd, 2 * BLOCK); /* it was advice only */
    bool one = cached_blocks(&checkpoint, &plan, 2, N_BLOCKS), others = cached_blocks(&checkpoint, &plan, 0, 3);
    assert_int_equal(close(fd), 0);
    files_remove_dir(checkpoint.dir);
    assert_int_equal(found, tells || memory);
    if (memory || !tells || kept)
        skip();
    assert_false(one);
    assert_true(others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_memory), cmocka_unit_test(on_a_disk)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
