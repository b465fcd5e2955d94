/* tests/fuzz/fuzz_batch_journal.c - libFuzzer target for the recovery of a batch's output. The first two bytes give the
 * part of the file that was known to be on disk. An accepted file consists of whole results and is accepted again
 * unchanged, and its hash then detects any change; a refused one is left unchanged. */
#include "coordinator/batch/journal.h"
#include "coordinator/batch/result.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

#include <unistd.h>

static bool take_line(void *context, const char *line, size_t bytes, int64_t offset, struct err *e)
{
    char id[LINE_MAX_ID_BYTES + 1];
    bool failed = false;
    int64_t *next = context;
    (void)e;
    must(offset == *next && memchr(line, '\n', bytes) == NULL);
    if (!result_read(line, bytes, id, &failed))
        return false;
    must(id[0] != '\0' && strlen(id) <= LINE_MAX_ID_BYTES);
    *next += (int64_t)bytes + 1;
    return true;
}

/* Returns whether the file is accepted; then the caller owns the journal. */
static bool recover(struct journal *j, const json_t *was, int64_t trusted, int64_t *cut)
{
    int64_t next = 0;
    struct err e = {0};
    const struct journal_reader reader = {RESULT_BEGIN, take_line, &next};
    must(journal_open(j, scratch_path("out"), 0, &e) == 0);
    int rc = journal_check(j, was, &e) == 0 ? journal_recover(j, trusted, &reader, cut, &e) : -1;
    must((rc == 0) == (e.code == ERR_NONE) && (rc != 0 || next == j->bytes));
    if (rc != 0)
        journal_close(j);
    return rc == 0;
}

static void check_same(const uint8_t *data, size_t bytes, size_t most)
{
    static char there[1 << 20];
    FILE *f = fopen(scratch_path("out"), "re");
    must(f != NULL);
    size_t n = fread(there, 1, sizeof there, f);
    (void)fclose(f);
    must(n == bytes && n <= most && memcmp(there, data, n) == 0);
}

/* Flips one bit of the part that was on disk. */
static void check_damage(const uint8_t *data, size_t bytes, const json_t *was)
{
    struct journal j;
    struct err e = {0};
    uint8_t *damaged = malloc(bytes);
    memcpy(damaged, data, bytes);
    damaged[bytes / 2] ^= 1;
    scratch_write("out", damaged, bytes);
    must(journal_open(&j, scratch_path("out"), 0, &e) == 0);
    must(journal_check(&j, was, &e) != 0 && e.code == ERR_INPUT);
    journal_close(&j);
    free(damaged);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal j;
    struct err e = {0};
    int64_t cut = 0;
    if (size < 2)
        return 0;
    int64_t trusted = data[0] == 255 ? JOURNAL_FOREIGN : data[0] + 256 * (int64_t)data[1];
    data += 2;
    size -= 2;
    scratch_write("out", data, size);
    if (!recover(&j, NULL, trusted, &cut)) {
        check_same(data, size, size);
        return 0;
    }
    size_t kept = (size_t)j.bytes;
    must(kept + (size_t)cut == size && (kept == 0 || data[kept - 1] == '\n'));
    must(journal_sync(&j, &e) == 0 && j.synced != NULL);
    json_t *was = json_incref(j.synced);
    journal_close(&j);
    check_same(data, kept, size);
    must(recover(&j, was, (int64_t)kept, &cut) && cut == 0 && j.intact == (int64_t)kept);
    must(journal_sync(&j, &e) == 0 && json_equal(j.synced, was));
    journal_close(&j);
    if (kept > 0)
        check_damage(data, kept, was);
    json_decref(was);
    return 0;
}
