/* tests/e2e/test_models_archives.c - `lockstep serve --models-dir --models-cache`: models in archives, unpacked once,
 * into a folder of bounded size; malicious archives and a full disk are errors in the reply. */
#include "base/clock.h"
#include "tests/support/archive.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/serving.h"
#include "tests/support/talk.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#define N_TOKENS 32

static char dir[256], cache[300];
static size_t one_bytes; /* size of one unpacked model */

static const char *in(const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

/* Packs the fixture as DIR/name, with `prefix` before the names of its files. */
static size_t pack(const char *fixture, const char *name, const char *prefix)
{
    char made[256];
    struct archive a = {0};
    models_fixture(made, fixture);
    archive_folder(&a, made, prefix);
    size_t bytes = a.bytes;
    archive_write(&a, true, in(name));
    files_remove_dir(made);
    return bytes;
}

static void make_models(void)
{
    char made[256];
    struct archive a = {0};
    files_make_dir(dir);
    (void)snprintf(cache, sizeof cache, "%s-cache", dir);
    one_bytes = pack("llama-bf16", "one.tar.gz", "");
    (void)pack("gpt2-3h", "two.tar", "two-of-them/");
    (void)pack("qwen3-f16", "cut.tar.gz", "");
    if (truncate(in("cut.tar.gz"), 2000) != 0)
        exit(99);
    archive_file(&a, "config.json", "{}", 2);
    archive_header(&a, '2', "model.safetensors", "/etc/passwd", 0);
    archive_write(&a, true, in("link.tar.gz"));
    archive_file(&a, "../outside", "{}", 2);
    archive_write(&a, true, in("outside.tar.gz"));
    archive_header(&a, '0', "model.safetensors", "", (uint64_t)1 << 40);
    archive_write(&a, true, in("bomb.tar.gz"));
    models_write_big(cache); /* with an unused name */
    archive_folder(&a, cache, "");
    archive_write(&a, true, in("large.tar"));
    files_remove_dir(cache);
    files_write_text(dir, "notes.txt", "no model");
    models_fixture(made, "llama-bf16");
    files_write_text(made, "serving.properties", "option.max_model_len=80\nbatch_size=2\nload_on_devices=0\n");
    files_write_text(made, "config.pbtxt", "name: \"folder\"\nmax_batch_size: 8\n");
    (void)rename(made, in("folder"));
    models_fixture(made, "llama-bf16");
    files_write_text(made, "serving.properties", "option.model_id=s3://elsewhere/model\n");
    (void)rename(made, in("elsewhere"));
}

/* Checks the code of an answer, and that its message contains this part. The tokens are the fixture's. */
static void expect(const struct serving *s, const char *name, const char *fixture, int code, const char *part)
{
    char text[2000], ids[1000] = "5";
    int32_t *prompt = NULL, *token = NULL;
    int n_prompt = 0;
    if (fixture != NULL)
        models_expected(fixture, &prompt, &n_prompt, &token);
    for (int k = 0, n = 0; k < n_prompt; k++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "%s%d", k > 0 ? "," : "", prompt[k]);
    (void)snprintf(text, sizeof text,
                   "{\"model\":\"%s\",\"prompt\":[%s],\"max_tokens\":%d,\"temperature\":0,\"ignore_eos\":true}", name,
                   ids, N_TOKENS);
    json_t *reply = talk_ask(s->endpoint, text);
    int found = strcmp(talk_text(reply, "status"), "ok") == 0 ? 200 : (int)talk_number(reply, "code");
    case_check(found == code, "%s: %d, expected %d: %s", name, found, code, talk_text(reply, "error/message"));
    case_check(part == NULL || strstr(talk_text(reply, "error/message"), part) != NULL, "\"%s\" is not in %s", part,
               talk_text(reply, "error/message"));
    const json_t *got = json_object_get(json_array_get(json_object_get(reply, "choices"), 0), "token_ids");
    for (size_t k = 0; code == 200 && k < N_TOKENS; k++)
        if (!case_check(json_integer_value(json_array_get(got, k)) == token[k], "%s: token %zu", name, k))
            break;
    json_decref(reply);
    free(prompt);
    free(token);
}

/* Returns the number of complete folders; -1: one is incomplete. */
static int n_unpacked(void)
{
    int n = 0;
    DIR *d = opendir(cache);
    for (struct dirent *entry; d != NULL && n >= 0 && (entry = readdir(d)) != NULL;) {
        if (strncmp(entry->d_name, ".half", 5) == 0 || strncmp(entry->d_name, ".leaving", 8) == 0)
            n = -1;
        else
            n += entry->d_name[0] != '.';
    }
    if (d != NULL)
        (void)closedir(d);
    return n;
}

static double unpacking(const struct serving *s, const char *model)
{
    return serving_metric_of(s, "ModelDownloadingTime", "model", model);
}

static void operate(const struct serving *s, const char *op, const char *name)
{
    char text[200];
    (void)snprintf(text, sizeof text, "{\"op\":\"%s\",\"model\":\"%s\"}", op, name);
    json_t *reply = talk_ask(s->endpoint, text);
    case_check(strcmp(talk_text(reply, "status"), "ok") == 0, "%s %s: %s", op, name, talk_text(reply, "error/message"));
    json_decref(reply);
}

static void served(int ranks)
{
    const char *const more[] = {"--models-cache", cache, "--models-cache-bytes", "8M", "--max-batch", "4", NULL};
    struct serving s;
    case_begin("models in archives are answered as in folders, on %d ranks", ranks);
    if (case_check(serving_start_models(&s, dir, ranks, more, NULL), "no server")) {
        expect(&s, "one", "llama-bf16", 200, NULL);
        expect(&s, "one.tar.gz", "llama-bf16", 200, NULL);
        expect(&s, "two.tar", "gpt2-3h", 200, NULL);
        case_check(n_unpacked() == 2, "%d folders, expected 2", n_unpacked());
        double took = unpacking(&s, "one");
        case_check(took > 0, "ModelDownloadingTime %g", took);
        double disk = serving_metric(&s, "DiskUtilization"), unpacked = serving_metric(&s, "models_unpacked_bytes");
        case_check(disk > 0 && disk <= 100, "DiskUtilization %g", disk);
        case_check(unpacked > (double)one_bytes && unpacked < 8 << 20, "%g bytes unpacked", unpacked);
        operate(&s, "unload", "one");
        expect(&s, "one", "llama-bf16", 200, NULL);
        case_check(unpacking(&s, "one") == took, "unpacked twice: %g and %g us", took, unpacking(&s, "one"));
        expect(&s, "one.tar.gz/../two", NULL, 404, NULL);
        case_end();
        case_begin("malicious archives are errors, on %d ranks", ranks);
        expect(&s, "cut", NULL, 500, "not a whole archive");
        expect(&s, "link", NULL, 500, "is a link");
        expect(&s, "outside", NULL, 500, "has a part ..");
        expect(&s, "bomb", NULL, 500, "more than 100 times its own");
        expect(&s, "large", NULL, 507, "--models-cache may hold 8388608");
        expect(&s, "two", "gpt2-3h", 200, NULL);
        case_check(n_unpacked() == 2, "%d folders, expected 2", n_unpacked());
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* Returns the number of positions that a model is served with. */
static double positions(const struct serving *s, const char *name)
{
    json_t *reply = talk_ask(s->endpoint, "{\"op\":\"models\"}");
    double n = -1;
    for (size_t k = 0; k < json_array_size(json_object_get(reply, "models")); k++) {
        const json_t *m = json_array_get(json_object_get(reply, "models"), k);
        if (strcmp(talk_text(m, "id"), name) == 0)
            n = talk_number(m, "max_model_len");
    }
    json_decref(reply);
    return n;
}

static void files_of_others(void)
{
    struct serving s;
    case_begin("serving.properties and config.pbtxt in a model's folder are obeyed, or refused by name");
    if (case_check(serving_start_models(&s, dir, 2, NULL, NULL), "no server")) {
        expect(&s, "folder", "llama-bf16", 200, NULL);
        case_check(positions(&s, "folder") == 80, "%g positions, expected 80", positions(&s, "folder"));
        expect(&s, "elsewhere", NULL, 500, "option.model_id");
        expect(&s, "folder", "llama-bf16", 200, NULL);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* The second model gets the first one's room after that is unloaded; the next job finds the folders that a job has
 * unpacked. */
static void bounded(void)
{
    char limit[40];
    (void)snprintf(limit, sizeof limit, "%zu", one_bytes + 60000);
    const char *const more[] = {"--models-cache", cache, "--models-cache-bytes", limit, "--max-models", "2", NULL};
    struct serving s;
    case_begin("unpacked archives are kept for the next job, and make room when they are not in use");
    if (case_check(serving_start_models(&s, dir, 2, more, NULL), "no server")) {
        expect(&s, "one", "llama-bf16", 200, NULL);
        case_check(unpacking(&s, "one") == 0, "unpacked again: %g us", unpacking(&s, "one"));
        expect(&s, "two", "gpt2-3h", 200, NULL); /* its folder still exists as well */
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
    files_remove_dir(cache);
    case_begin("a loaded model keeps its folder");
    if (case_check(serving_start_models(&s, dir, 2, more, NULL), "no server")) {
        expect(&s, "one", "llama-bf16", 200, NULL);
        expect(&s, "two", NULL, 507, "models that are in use");
        expect(&s, "one", "llama-bf16", 200, NULL);
        operate(&s, "unload", "one");
        operate(&s, "load", "two"); /* after the failure above */
        expect(&s, "two", "gpt2-3h", 200, NULL);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

static void disk_full(void)
{
    static char preload[4200];
    static const char *const env[] = {preload, "FAIL_WRITE_AFTER=30000", NULL};
    const char *const more[] = {"--models-cache", cache, NULL};
    const char *build = getenv("LOCKSTEP_BUILD");
    char path[4096];
    struct serving s;
    (void)snprintf(path, sizeof path, "%s/tests/fail_write.so", build != NULL ? build : "build/cpu");
    char *real = realpath(path, NULL);
    (void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s", real != NULL ? real : "");
    free(real);
    files_remove_dir(cache);
    case_begin("a disk that fills up while an archive is unpacked is a 507; no partial folder stays, the job goes on");
    if (case_check(serving_start_models(&s, dir, 2, more, env), "no server")) {
        expect(&s, "one", NULL, 507, "No space left on device");
        case_check(n_unpacked() == 0, "%d folders, expected none", n_unpacked());
        expect(&s, "folder", "llama-bf16", 200, NULL);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

/* Returns the KiB that a rank has locked. */
static long locked(const struct serving *s, int rank)
{
    char path[60], line[200];
    long kib = -1;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)process_of_rank(&s->p, rank));
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        (void)sscanf(line, "VmLck: %ld", &kib);
    if (f != NULL)
        (void)fclose(f);
    return kib;
}

static void host_cache(void)
{
    const char *const more[] = {"--models-cache", cache, "--host-cache", "1M", NULL};
    struct serving s;
    case_begin("--host-cache: files of an unloaded model are locked in memory, once per host");
    if (case_check(serving_start_models(&s, dir, 2, more, NULL), "no server")) {
        expect(&s, "two", "gpt2-3h", 200, NULL);
        case_check(locked(&s, 0) == 0, "%ld KiB locked before", locked(&s, 0));
        operate(&s, "unload", "two");
        for (double until = seconds_now() + process_patience(30); locked(&s, 0) <= 0 && seconds_now() < until;)
            (void)usleep(1000);
        case_check(locked(&s, 0) == 76 && locked(&s, 1) == 0, "%ld and %ld KiB locked, expected 76 and 0",
                   locked(&s, 0), locked(&s, 1));
        for (double until = seconds_now() + process_patience(30);
             serving_metric(&s, "models_host_cache_bytes") <= 0 && seconds_now() < until;)
            (void)usleep(1000);
        case_check(serving_metric(&s, "models_host_cache_bytes") == 76 * 1024, "models_host_cache_bytes");
        expect(&s, "two", "gpt2-3h", 200, NULL);
        case_check(serving_stop(&s) == 0, "status");
    }
    case_end();
}

int main(void)
{
    make_models();
    served(1);
    files_remove_dir(cache);
    served(3);
    bounded();
    files_of_others();
    host_cache();
    disk_full();
    files_remove_dir(cache);
    files_remove_dir(dir);
    return cases_done();
}
