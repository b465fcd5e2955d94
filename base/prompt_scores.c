/* base/prompt_scores.c - see prompt_scores.h. */
#include "base/prompt_scores.h"

#include <stdio.h>

/* rank 0: unknown. */
static int put_token(json_t *all, const json_t *token, size_t rank)
{
    char id[24];
    (void)snprintf(id, sizeof id, "%lld", (long long)json_integer_value(json_object_get(token, "token_id")));
    json_t *one = json_pack("{s:O?, s:o, s:O?}", "logprob", json_object_get(token, "logprob"), "rank",
                            rank > 0 ? json_integer((json_int_t)rank) : json_null(), "decoded_token",
                            json_object_get(token, "token"));
    return json_object_set_new(all, id, one);
}

static json_t *scores_of(const json_t *entry)
{
    const json_t *top;
    size_t k;
    json_t *all = json_object();
    bool good = put_token(all, entry, 0) == 0;
    json_array_foreach(json_object_get(entry, "top_logprobs"), k, top)
    {
        good = put_token(all, top, k + 1) == 0 && good;
    }
    if (good)
        return all;
    json_decref(all);
    return NULL;
}

json_t *prompt_scores(const json_t *entries)
{
    const json_t *entry;
    size_t i;
    json_t *list = json_array();
    bool good = true;
    json_array_foreach(entries, i, entry)
    {
        good = json_array_append_new(list, json_is_null(entry) ? json_null() : scores_of(entry)) == 0 && good;
    }
    if (good)
        return list;
    json_decref(list);
    return NULL;
}
