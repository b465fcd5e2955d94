/* gateway/backend/served.c - the names of the served models, for a message about a name that is none of them. */
#include "base/json.h"
#include "gateway/backend/pool.h"

#include <stdio.h>
#include <string.h>

#define MOST_NAMES 3

/* Different names, of which the first ones are kept. */
struct names {
    const char *name[MOST_NAMES];
    int n;
    bool more;
};

static void note(struct names *all, const char *id)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->name[i], id) == 0)
            return;
    if (all->n < MOST_NAMES)
        all->name[all->n++] = id;
    else
        all->more = true;
}

static void note_all(struct names *all, const struct backend *b)
{
    const json_t *m;
    size_t i;
    json_array_foreach(json_object_get(b->models, "models"), i, m)
    {
        if (backend_takes(b) && json_is_string(json_object_get(m, "id")))
            note(all, json_string_value(json_object_get(m, "id")));
    }
}

void pool_say_unknown(const struct pool *p, const char *model, char *text, size_t bytes)
{
    struct names all = {0};
    for (const struct backend *b = p->first; b != NULL; b = b->next)
        note_all(&all, b);
    size_t used = (size_t)snprintf(text, bytes, "\"%.100s\" is not served here", model);
    for (int i = 0; i < all.n && used < bytes; i++) {
        const char *before = i == 0 ? ", expected" : i + 1 == all.n && !all.more ? " or" : ",";
        used += (size_t)snprintf(text + used, bytes - used, "%s \"%.80s\"", before, all.name[i]);
    }
    if (all.more && used < bytes)
        (void)snprintf(text + used, bytes - used, " or another (GET /v1/models)");
}
