/* tests/fuzz/fuzz_batch_manifest.c - libFuzzer target for OUTPUT.manifest.json and the values read from it: counts,
 * hashes of the output and of the inputs. Files that it names are only read, whatever its content, and a refusal has a
 * message. */
#include "coordinator/batch/journal.h"
#include "coordinator/batch/manifest.h"
#include "coordinator/batch/recorded.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

#include <fcntl.h>
#include <unistd.h>

static const char result[] = "{\"id\":\"a\",\"text\":\"b\",\"finish_reason\":\"stop\"}\n";

static void check_output(const struct manifest *m)
{
    struct journal j;
    struct err e = {0};
    scratch_write("out", result, sizeof result - 1);
    must(journal_open(&j, scratch_path("out"), 0, &e) == 0);
    int rc = journal_check(&j, manifest_output(m), &e);
    must((rc == 0) == (e.code == ERR_NONE) && (rc == 0 || e.text[0] != '\0'));
    must(j.intact == 0 || j.intact == json_integer_value(json_object_get(manifest_output(m), "bytes")));
    must(j.intact >= 0 && j.intact <= (int64_t)sizeof result - 1);
    journal_close(&j);
}

static void check_inputs(const struct manifest *m)
{
    struct inputs in;
    struct err e = {0};
    const char *path = "in.jsonl";
    scratch_write(path, "{\"prompt\":\"a\"}\n", 15);
    int before = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(before >= 0 && chdir(scratch) == 0); /* a corpus cannot know the folder's name */
    must(inputs_open(&in, &path, 1, &e) == 0);
    int rc = recorded_check(json_object_get(m->previous, "inputs"), &in, "out", &e);
    must((rc == 0) == (e.code == ERR_NONE) && (rc == 0 || e.text[0] != '\0'));
    json_t *now = recorded_inputs(&in);
    must(json_array_size(now) == 1);
    json_decref(now);
    inputs_close(&in);
    must(fchdir(before) == 0);
    (void)close(before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct manifest m;
    struct err e = {0};
    json_t *identity = json_pack("{s:s, s:i, s:{s:f}}", "format", "plain", "seed", 0, "defaults", "top_p", 0.5);
    scratch_write("out.manifest.json", data, size);
    if (manifest_open(&m, scratch_path("out"), identity, &e) == 0) {
        must(json_is_object(m.previous));
        (void)manifest_number(&m, "tokens", "prompt");
        (void)manifest_real(&m, "seconds");
        (void)manifest_synced(&m);
        must((manifest_check(&m, "out", &e) == 0) == (e.code == ERR_NONE));
        check_output(&m);
        check_inputs(&m);
        e = (struct err){0};
        must(manifest_forget_output(&m, &e) == 0 && manifest_output(&m) == NULL);
        must(manifest_write(&m, json_object(), &e) == 0);
    } else {
        must(e.code == ERR_INPUT && strstr(e.text, "out.manifest.json") != NULL);
    }
    manifest_close(&m);
    return 0;
}
