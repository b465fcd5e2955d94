/* tests/e2e/test_reading.c - all ranks of a node together read the checkpoint about once, in large requests, or each
 * rank reads its own share; `inspect` shows the shares, which together make up the checkpoint. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct reads {
    unsigned long long bytes, requests, largest;
    unsigned long long most; /* largest number of bytes that one rank read */
    int ranks;               /* number of ranks that read anything */
};

static struct reads sum_reads(const char *dir)
{
    struct reads all = {0};
    unsigned long long bytes, requests, largest;
    size_t n;
    char *text = files_read(dir, "counts", &n);
    for (char *at = text; sscanf(at, "%llu %llu %llu", &bytes, &requests, &largest) == 3; at++) {
        all.bytes += bytes;
        all.most = bytes > all.most ? bytes : all.most;
        all.requests += requests;
        all.largest = largest > all.largest ? largest : all.largest;
        all.ranks++;
        at += strcspn(at, "\n");
        if (*at == '\0')
            break;
    }
    free(text);
    return all;
}

static void read_once(const char *name, const char *dir, int ranks, bool large, const char *way)
{
    bool alone = strcmp(way, "alone") == 0;
    const char *build = getenv("LOCKSTEP_BUILD");
    char library[PATH_MAX], preload[PATH_MAX + 20], report[300], counts[256];
    files_make_dir(counts);
    (void)snprintf(library, sizeof library, "%s/tests/count_reads.so", build != NULL ? build : "build/cpu");
    char *full = realpath(library, NULL);
    (void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s", full != NULL ? full : library);
    free(full);
    (void)snprintf(report, sizeof report, "COUNT_READS_FILE=%s/counts", counts);
    const char *env[] = {preload, report, NULL};
    struct process_setup setup = {.ranks = ranks, .env = env};
    struct process p;
    case_begin("%s is read once by %d ranks, --load-way %s", name, ranks, way);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2,3", "--max-tokens", "2", "--load-way",
                                 way, NULL});
    if (case_check(p.status == 0, "status %d: %s", p.status, p.text[PROCESS_ERR])) {
        struct reads r = sum_reads(counts);
        double file = (double)models_weight_bytes(dir), mean = (double)r.bytes / (double)r.requests;
        case_check((double)r.bytes <= 1.1 * file, "%llu bytes are read from a file of %.0f", r.bytes, file);
        case_check((double)r.bytes >= 0.99 * file, "only %llu of the %.0f bytes of a file are read", r.bytes, file);
        case_check(!large || alone || mean >= 1 << 20, "%llu requests of %.0f bytes on average", r.requests, mean);
        case_check(!large || r.ranks == ranks, "%d of %d ranks read", r.ranks, ranks);
        case_check(!alone || (double)r.most <= 1.1 * file / ranks, "a rank of %d reads %llu bytes from a file of %.0f",
                   ranks, r.most, file);
        printf("# %s, %d ranks: %.3f times its bytes, %llu requests, %.2f MiB on average\n", name, ranks,
               (double)r.bytes / file, r.requests, mean / (1 << 20));
    }
    case_end();
    process_free(&p);
    files_remove_dir(counts);
}

/* Checks the ranges of all ranks, one after the other: they cover every unit exactly once. */
static void check_cover(const json_t *ranks, const char *key, int total)
{
    size_t i;
    json_t *rank;
    int at = 0;
    json_array_foreach(ranks, i, rank)
    {
        const json_t *range = json_object_get(rank, key);
        int begin = (int)json_integer_value(json_array_get(range, 0));
        int end = (int)json_integer_value(json_array_get(range, 1));
        if (!case_check(json_array_size(range) == 2 && end >= begin && (begin == at || begin == end),
                        "%s of rank %zu are [%d, %d), expected a beginning at %d", key, i, begin, end, at))
            return;
        at = end > begin ? end : at;
    }
    case_check(at == total, "%s end at %d, expected %d", key, at, total);
}

/* A rank's KV heads are those of its query heads: they may repeat, but all occur. */
static void check_kv_heads(const json_t *ranks, int heads, int kv_heads)
{
    size_t i;
    json_t *rank;
    json_array_foreach(ranks, i, rank)
    {
        const json_t *q = json_object_get(rank, "heads"), *kv = json_object_get(rank, "kv_heads");
        int per = heads / kv_heads, first = (int)json_integer_value(json_array_get(q, 0));
        int last = (int)json_integer_value(json_array_get(q, 1)) - 1;
        if (last >= first)
            case_check(json_integer_value(json_array_get(kv, 0)) == first / per &&
                           json_integer_value(json_array_get(kv, 1)) == last / per + 1,
                       "KV heads of rank %zu", i);
        else
            case_check(json_integer_value(json_array_get(kv, 0)) == json_integer_value(json_array_get(kv, 1)),
                       "KV heads of rank %zu without heads", i);
    }
}

static json_int_t sum_of(const json_t *ranks, const char *key)
{
    size_t i;
    json_t *rank;
    json_int_t sum = 0;
    json_array_foreach(ranks, i, rank) sum += json_integer_value(json_object_get(rank, key));
    return sum;
}

static void inspect(const char *name, const char *dir, int n)
{
    char number[16];
    struct process_setup setup = {.ranks = 0};
    struct process p;
    (void)snprintf(number, sizeof number, "%d", n);
    case_begin("inspect %s for %d ranks", name, n);
    process_run(&p, &setup, (const char *[]){"inspect", "--model", dir, "--ranks", number, "--json", NULL});
    json_t *o = json_loads(p.text[PROCESS_OUT], 0, NULL);
    if (case_check(p.status == 0 && o != NULL, "status %d: %s", p.status, p.text[PROCESS_ERR])) {
        const json_t *ranks = json_object_get(o, "ranks");
        json_int_t held = sum_of(ranks, "weight_bytes"),
                   file = json_integer_value(json_object_get(o, "checkpoint_bytes"));
        int heads = (int)json_integer_value(json_object_get(o, "heads"));
        int kv_heads = (int)json_integer_value(json_object_get(o, "kv_heads"));
        case_check((int)json_array_size(ranks) == n, "%zu ranks", json_array_size(ranks));
        check_cover(ranks, "heads", heads);
        check_cover(ranks, "mlp_columns", (int)json_integer_value(json_object_get(o, "mlp_columns")));
        check_cover(ranks, "vocabulary", (int)json_integer_value(json_object_get(o, "vocabulary")));
        check_kv_heads(ranks, heads, kv_heads);
        case_check(n == 1 ? held == file : held >= file, "%lld bytes are held of %lld", (long long)held,
                   (long long)file);
        /* The remainder is replicated: norms and shared KV heads, a small part of these models. */
        case_check((double)held <= (double)file * (1 + 0.06 * (n - 1)), "%lld bytes are held of %lld", (long long)held,
                   (long long)file);
        case_check(file <= (json_int_t)models_weight_bytes(dir), "%lld bytes of tensors", (long long)file);
    }
    case_end();
    json_decref(o);
    process_free(&p);
}

static void inspect_as_table(const char *dir)
{
    struct process_setup setup = {.ranks = 0};
    struct process p;
    case_begin("inspect as a table");
    process_run(&p, &setup, (const char *[]){"inspect", "--model", dir, "--ranks", "7", NULL});
    case_check(p.status == 0 && p.bytes[PROCESS_ERR] == 0, "status %d: %s", p.status, p.text[PROCESS_ERR]);
    case_check(strstr(p.text[PROCESS_OUT], "\n    6 ") != NULL && strstr(p.text[PROCESS_OUT], "none") != NULL,
               "no line of rank 6, or no share without heads: %s", p.text[PROCESS_OUT]);
    case_check(process_in_time(p.seconds, 1), "%.2f s", p.seconds);
    case_end();
    process_free(&p);
}

/* A tensor that the model does not use is named once, and the run goes on. */
static void unknown_tensor(int ranks)
{
    char dir[256];
    char *data;
    size_t bytes;
    struct process_setup setup = {.ranks = ranks};
    struct process p;
    models_fixture(dir, "llama-7-1-tied");
    json_t *header = models_split(dir, "model.safetensors", &data, &bytes);
    json_object_set(header, "lm_tail.weight", json_object_get(header, "lm_head.weight"));
    json_object_del(header, "lm_head.weight");
    char *text = json_dumps(header, JSON_COMPACT);
    models_join(dir, "model.safetensors", text, -1, data, bytes);
    case_begin("a tensor that the model does not use, %d ranks", ranks);
    process_run(&p, &setup,
                (const char *[]){"generate", "--model", dir, "--prompt-ids", "1,2,3", "--max-tokens", "2", NULL});
    case_check(p.status == 0 && p.bytes[PROCESS_OUT] > 0, "status %d", p.status);
    case_check(process_count_lines(p.text[PROCESS_ERR]) == 1 &&
                   strncmp(p.text[PROCESS_ERR], "lockstep: warning: ", 19) == 0 &&
                   strstr(p.text[PROCESS_ERR], "lm_tail.weight") != NULL,
               "standard error: %s", p.text[PROCESS_ERR]);
    case_end();
    process_free(&p);
    free(text);
    free(data);
    json_decref(header);
    files_remove_dir(dir);
}

int main(void)
{
    char big[256];
    models_write_big(big);
    for (int ranks = 1; ranks <= 4; ranks++) {
        read_once("the demo model", models_demo(), ranks, false, "auto");
        read_once("a checkpoint of 41 MB", big, ranks, true, "auto");
    }
    read_once("the demo model", models_demo(), 3, false, "alone");
    read_once("a checkpoint of 41 MB", big, 2, true, "alone");
    read_once("a checkpoint of 41 MB", big, 4, true, "alone");
    for (int n = 1; n <= 9; n++)
        inspect("the demo model", models_demo(), n);
    inspect("a checkpoint of 41 MB", big, 3);
    inspect("a checkpoint of 41 MB", big, 64);
    inspect_as_table(models_demo());
    unknown_tensor(1);
    unknown_tensor(3);
    files_remove_dir(big);
    return cases_done();
}
