/* coordinator/drafts/draft_options.c - see draft_options.h. */
#include "coordinator/drafts/draft_options.h"
#include "base/json.h"

#include <string.h>

#define CONFIG        "--speculative-config"
#define LOOKUP        64 /* tokens of an end that are looked for at most */
#define LOOKUP_TOKENS 5  /* as many as vLLM looks for unless told */

/* A field that this program does not know, or does not have. */
static int check_fields(const json_t *config, struct err *e)
{
    static const char *const known[] = {"method", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            return ERR(e, ERR_USAGE,
                       CONFIG ": \"%.40s\" is not supported, expected \"method\", \"num_speculative_tokens\", "
                              "\"prompt_lookup_max\" and \"prompt_lookup_min\"",
                       key);
    }
    return 0;
}

static int64_t number(const json_t *config, const char *key, int64_t most, struct err *e)
{
    return json_get_int(config, key, -1, 1, most, CONFIG, e);
}

/* Fields of the config, into the options that say the same unless these are given. */
static int read_config(struct run_options *o, struct err *e)
{
    json_t *config = json_parse(o->speculative_config, strlen(o->speculative_config), CONFIG, e);
    if (config != NULL && !json_is_object(config))
        ERR(e, ERR_USAGE, CONFIG ": found %s, expected an object", json_type_name(config));
    const char *method = "";
    if (e->code == ERR_NONE && check_fields(config, e) == 0)
        method = json_get_string(config, "method", "", CONFIG, e);
    if (e->code == ERR_NONE && strcmp(method, "ngram") != 0)
        ERR(e, ERR_USAGE, CONFIG ": \"method\" is \"%.40s\", only \"ngram\" is supported", method);
    if (e->code == ERR_NONE) {
        int64_t most = number(config, "num_speculative_tokens", DRAFTS_MAX, e);
        int64_t longest = number(config, "prompt_lookup_max", LOOKUP, e);
        int64_t shortest = number(config, "prompt_lookup_min", LOOKUP, e);
        o->num_speculative_tokens = o->num_speculative_tokens < 0 ? most : o->num_speculative_tokens;
        o->prompt_lookup_max = o->prompt_lookup_max < 0 ? longest : o->prompt_lookup_max;
        o->prompt_lookup_min = o->prompt_lookup_min < 0 ? shortest : o->prompt_lookup_min;
    }
    json_decref(config);
    if (e->code == ERR_NONE)
        return 0;
    e->code = ERR_USAGE;
    return -1;
}

static bool asks_for_drafts(const struct run_options *o)
{
    return o->speculative_config != NULL || o->num_speculative_tokens > 0 || o->prompt_lookup_max > 0 ||
           o->prompt_lookup_min > 0;
}

/* Lengths that are missing are vLLM's: 5 if both are, else each the other one. */
int draft_rules(struct guess_rules *rules, const struct run_options *o, struct err *e)
{
    struct run_options mine = *o;
    *rules = (struct guess_rules){0};
    if (o->speculative == SPECULATIVE_ALWAYS && !asks_for_drafts(o))
        return ERR(e, ERR_USAGE, "--speculative always needs --speculative-config or --num-speculative-tokens");
    if (!asks_for_drafts(o))
        return 0;
    if (o->speculative_config != NULL && read_config(&mine, e) != 0)
        return -1;
    if (mine.num_speculative_tokens <= 0)
        return ERR(e, ERR_USAGE,
                   "the number of drafts is missing: --num-speculative-tokens, or "
                   "\"num_speculative_tokens\" in " CONFIG);
    int64_t longest = mine.prompt_lookup_max, shortest = mine.prompt_lookup_min;
    longest = longest > 0 ? longest : shortest > 0 ? shortest : LOOKUP_TOKENS;
    shortest = shortest > 0 ? shortest : longest;
    if (shortest > longest)
        return ERR(e, ERR_USAGE, "prompt_lookup_min %lld is more than prompt_lookup_max %lld", (long long)shortest,
                   (long long)longest);
    if (o->speculative != SPECULATIVE_OFF)
        *rules = (struct guess_rules){(int32_t)mine.num_speculative_tokens, (int32_t)shortest, (int32_t)longest,
                                      o->speculative == SPECULATIVE_ALWAYS};
    return 0;
}
