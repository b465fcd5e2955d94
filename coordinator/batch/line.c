/* coordinator/batch/line.c - see line.h. */
#include "coordinator/batch/line.h"
#include "base/json.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parse(struct line *l, const struct input_line *from, const char *file_name, const struct line_rules *rules)
{
    struct job *j = l->job;
    json_t *object = protocol_json(from->text, from->bytes, "line", &j->error);
    char made[LINE_MAX_ID_BYTES + 1];
    (void)snprintf(made, sizeof made, "%.480s:%lld", file_name, (long long)from->number);
    l->id = strdup(made);
    if (object != NULL)
        (void)protocol_parse_generate(&j->message, object, rules->defaults, rules->model, &j->error);
    json_decref(object);
}

struct line *line_open(const struct input_line *from, const char *file_name, const struct line_rules *rules,
                       uint64_t number, double now)
{
    struct line *l = calloc(1, sizeof *l);
    struct job *j = l != NULL ? job_open(number, NULL, false, now) : NULL;
    if (j == NULL) {
        free(l);
        return NULL;
    }
    *l = (struct line){.job = j, .file = from->file, .number = from->number, .bytes = from->bytes};
    j->owner = l;
    j->parsed = true;
    parse(l, from, file_name, rules);
    return l;
}

void line_close(struct line *l)
{
    if (l == NULL)
        return;
    job_close(l->job);
    free(l->id);
    free(l);
}

uint64_t line_seed(uint64_t seed, const char *id)
{
    unsigned char key[sizeof seed], hash[crypto_generichash_BYTES];
    uint64_t first = 0;
    for (size_t i = 0; i < sizeof key; i++)
        key[i] = (unsigned char)(seed >> 8 * i);
    crypto_generichash_state state;
    (void)crypto_generichash_init(&state, NULL, 0, sizeof hash);
    (void)crypto_generichash_update(&state, key, sizeof key);
    (void)crypto_generichash_update(&state, (const unsigned char *)id, strlen(id));
    (void)crypto_generichash_final(&state, hash, sizeof hash);
    for (int i = 0; i < 8; i++)
        first = first << 8 | hash[i];
    return first >> 11;
}
