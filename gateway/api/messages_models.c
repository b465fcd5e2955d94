/* gateway/api/messages_models.c - the served models in Anthropic's form, for clients that send `anthropic-version`. */
#include "base/json.h"
#include "gateway/api/messages.h"
#include "gateway/api/models.h"

#include <time.h>

static json_t *card_of(const struct exchange *x, const char *id)
{
    char since[sizeof "2026-01-01T00:00:00Z"] = "";
    time_t started = (time_t)x->gateway->started;
    struct tm t;
    if (gmtime_r(&started, &t) != NULL)
        (void)strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &t);
    return json_pack("{s:s, s:s, s:s, s:s}", "type", "model", "id", id, "display_name", id, "created_at", since);
}

void messages_models(struct exchange *x)
{
    json_t *all = models_known(x), *list = json_array(), *m;
    const char *id;
    json_object_foreach(all, id, m)
    {
        (void)json_array_append_new(list, card_of(x, id));
    }
    json_t *first = json_object_get(json_array_get(list, 0), "id");
    json_t *last = json_object_get(json_array_get(list, json_array_size(list) - 1), "id");
    json_decref(all);
    exchange_answer_json(
        x, 200, json_pack("{s:o, s:b, s:O?, s:O?}", "data", list, "has_more", 0, "first_id", first, "last_id", last));
}

void messages_model(struct exchange *x)
{
    json_t *all = models_known(x);
    bool known = json_object_get(all, x->tail[0]) != NULL;
    struct fault f = models_unknown(x, x->tail[0]);
    json_decref(all);
    if (known)
        exchange_answer_json(x, 200, card_of(x, x->tail[0]));
    else
        exchange_fail(x, &f);
}
