/* gateway/backend/residence.c - see residence.h. */
#include "gateway/backend/residence.h"

#include <string.h>

/* By its state it is loaded, or will be. */
static bool is_resident(const json_t *model)
{
    static const char *const state[] = {"ready", "loading", "waiting"};
    const char *text = json_string_value(json_object_get(model, "state"));
    for (size_t i = 0; text != NULL && i < sizeof state / sizeof state[0]; i++)
        if (strcmp(text, state[i]) == 0)
            return true;
    return false;
}

static bool was_sent(const struct backend *b, const char *model)
{
    return json_object_get(b->sent, model) != NULL;
}

bool residence_has(const struct backend *b, const char *model)
{
    return !backend_is_shared(b) || was_sent(b, model) || is_resident(backend_model(b, model));
}

int residence_count(const struct backend *b)
{
    const json_t *list = json_object_get(b->models, "models"), *one;
    size_t i;
    int n = 0;
    json_array_foreach(list, i, one)
    {
        const char *name = json_string_value(json_object_get(one, "id"));
        n += is_resident(one) || (name != NULL && was_sent(b, name));
    }
    return n;
}

void residence_sent(struct backend *b, const char *model)
{
    if (!backend_is_shared(b) || model[0] == '\0' || backend_model(b, model) == NULL)
        return;
    if (b->sent == NULL)
        b->sent = json_object();
    (void)json_object_set_new(b->sent, model, json_real(b->pool->loop->now));
}

void residence_listed(struct backend *b, double asked)
{
    const char *model;
    json_t *at;
    void *next;
    json_object_foreach_safe(b->sent, next, model, at)
    {
        if (json_number_value(at) < asked)
            (void)json_object_del(b->sent, model);
    }
}

void residence_told(struct backend *b, const char *model)
{
    (void)json_object_del(b->sent, model);
}
