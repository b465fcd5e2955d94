/* tests/fuzz/fuzz_batch_input.c - libFuzzer target for a batch's input: its lines, and the requests in them. Each line
 * becomes a request or an error with a message; each has an id within the limit; bytes and lines are counted correctly.
 * Only the byte order mark of another encoding ends the reading. */
#include "base/bom.h"
#include "coordinator/batch/line.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"

/* late: the model becomes known only after the line has named it. */
static void check_line(const struct input_line *from, const struct line_rules *rules, bool late)
{
    const struct line_rules unknown = {NULL, rules->defaults};
    struct line *l = line_open(from, "in.jsonl", late ? &unknown : rules, (uint64_t)from->number, 1);
    must(l == NULL || !late || (l->text != NULL) == (l->task->error.code == 0));
    if (l != NULL && late && l->text != NULL)
        line_check(l, rules);
    must(l != NULL && l->id != NULL && l->id[0] != '\0' && strlen(l->id) <= LINE_MAX_ID_BYTES + 32);
    if (l->task->error.code != 0)
        must(l->task->error.message[0] != '\0');
    (void)line_seed(7, l->id);
    line_name_field(l);
    line_close(l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct served model = {.model = {.name = "m", .vocab = 100}};
    struct inputs in;
    struct input_line line;
    struct err e = {0}, again = {0};
    int64_t number = 0, end = 0;
    scratch_write("in.jsonl", data, size);
    const char *path = scratch_path("in.jsonl");
    json_t *defaults = json_pack("{s:i}", "max_tokens", 5);
    const struct line_rules rules = {&model, defaults};
    if (inputs_open(&in, &path, 1, &e) != 0) {
        must(e.text[0] != '\0' && bom_bytes((const char *)data, size, "", &again) < 0);
        goto out;
    }
    must(in.bytes == (int64_t)size);
    for (enum input_got got; (got = inputs_next(&in, &line, &e)) != INPUT_END;) {
        must(got == INPUT_LINE && line.number > number && line.index == line.number - 1 && line.end > end);
        must(line.text == NULL || memchr(line.text, '\n', line.bytes) == NULL);
        number = line.number;
        end = line.end;
        check_line(&line, &rules, false);
        check_line(&line, &rules, true);
    }
    must(in.bytes_read == (int64_t)size && end <= (int64_t)size + 1);
out:
    inputs_close(&in);
    json_decref(defaults);
    return 0;
}
