/* coordinator/batch/manifest.c - see manifest.h. */
#include "coordinator/batch/manifest.h"
#include "base/files.h"
#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES ((size_t)64 << 20)

int manifest_open(struct manifest *m, const char *output, json_t *identity, struct err *e)
{
    size_t bytes = strlen(output) + sizeof MANIFEST_ENDING;
    *m = (struct manifest){.identity = identity};
    m->path = err_calloc(e, bytes, 1, "manifest");
    if (m->path == NULL || identity == NULL)
        return ERR(e, ERR_MEMORY, "out of host memory: manifest");
    (void)snprintf(m->path, bytes, "%s%s", output, MANIFEST_ENDING);
    if (files_present(m->path) && (m->previous = json_read_file(m->path, MAX_BYTES, e)) == NULL)
        return -1;
    if (m->previous != NULL && !json_is_object(m->previous))
        return ERR(e, ERR_INPUT, "%.300s: found %s, expected an object", m->path, json_type_name(m->previous));
    return 0;
}

void manifest_close(struct manifest *m)
{
    free(m->path);
    json_decref(m->previous);
    json_decref(m->identity);
    memset(m, 0, sizeof *m);
}

static int differ(const char *output, const char *key, const json_t *was, const json_t *is, struct err *e)
{
    char *old = was != NULL ? json_text(was, JSON_COMPACT | JSON_ENCODE_ANY) : NULL,
         *now = is != NULL ? json_text(is, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    ERR(e, ERR_INPUT,
        "--output %.120s was begun with %.60s %.70s, this run has %.70s: use --force to continue all the same, or "
        "another --output",
        output, key, old != NULL ? old : "not set", now != NULL ? now : "not set");
    free(old);
    free(now);
    return -1;
}

/* Member by member, so that the message names the smallest thing that differs. prefix: "model." */
int manifest_compare(const char *output, const char *prefix, const json_t *was, const json_t *is, struct err *e)
{
    json_t *all = json_object(), *value;
    const char *key;
    (void)json_object_update(all, (json_t *)is);
    if (*prefix != '\0') /* the top level has members beside the identity */
        (void)json_object_update_missing(all, (json_t *)was);
    json_object_foreach(all, key, value)
    {
        char name[128], inner[130];
        const json_t *old = json_object_get(was, key), *now = json_object_get(is, key);
        (void)snprintf(name, sizeof name, "%s%s", prefix, key);
        (void)snprintf(inner, sizeof inner, "%s.", name);
        if (json_is_object(old) && json_is_object(now))
            (void)manifest_compare(output, inner, old, now, e);
        else if (old == NULL || now == NULL || !json_equal(old, now))
            (void)differ(output, name, old, now, e);
    }
    json_decref(all);
    return e->code == ERR_NONE ? 0 : -1;
}

int manifest_check(const struct manifest *m, const char *output, struct err *e)
{
    if (m->previous == NULL)
        return ERR(e, ERR_INPUT,
                   "--output %.160s: there are results, but no %.160s that records what made them: use --force to "
                   "continue all the same",
                   output, m->path);
    return manifest_compare(output, "", m->previous, m->identity, e);
}

int64_t manifest_number(const struct manifest *m, const char *part, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(m->previous, part), key));
}

double manifest_real(const struct manifest *m, const char *key)
{
    return json_number_value(json_object_get(m->previous, key));
}

int64_t manifest_synced(const struct manifest *m)
{
    return json_integer_value(json_object_get(m->previous, "synced_bytes"));
}

const json_t *manifest_output(const struct manifest *m)
{
    return json_object_get(m->previous, "synced");
}

int manifest_forget_output(struct manifest *m, struct err *e)
{
    if (manifest_output(m) == NULL)
        return 0;
    (void)json_object_del(m->previous, "synced");
    return files_replace_json_synced(m->path, m->previous, 0644, e);
}

int manifest_write(struct manifest *m, json_t *rest, struct err *e)
{
    json_t *all = json_object();
    bool good = rest != NULL && json_object_update(all, m->identity) == 0 && json_object_update(all, rest) == 0;
    int rc = files_replace_json_synced(m->path, good ? all : NULL, 0644, e);
    json_decref(all);
    json_decref(rest);
    return rc;
}
