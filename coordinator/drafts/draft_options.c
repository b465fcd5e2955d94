/* coordinator/drafts/draft_options.c - see draft_options.h. */
#include "coordinator/drafts/draft_options.h"
#include "base/json.h"
#include "base/repository.h"

#include <stdio.h>
#include <string.h>

#define CONFIG        "--speculative-config"
#define LOOKUP        64 /* most tokens of a match */
#define LOOKUP_TOKENS 5  /* vLLM's default */

/* Refuses an unknown or unimplemented field. */
static int check_fields(const json_t *config, struct err *e)
{
    static const char *const known[] = {
        "method",           "model", "num_speculative_tokens", "draft_tensor_parallel_size", "prompt_lookup_max",
        "prompt_lookup_min"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)config, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known)
            return ERR(e, ERR_USAGE,
                       CONFIG ": \"%.40s\" is not supported, expected \"method\", \"model\", "
                              "\"num_speculative_tokens\", \"draft_tensor_parallel_size\", \"prompt_lookup_max\" "
                              "and \"prompt_lookup_min\"",
                       key);
    }
    return 0;
}

static int64_t number(const json_t *config, const char *key, int64_t most, struct err *e)
{
    return json_get_int(config, key, -1, 1, most, CONFIG, e);
}

/* The options, completed from the config. */
struct draft_wishes {
    int64_t most, longest, shortest, ranks;
    bool shared;          /* the method "suffix" */
    enum draft_kind kind; /* decided by the folder's contents */
    char folder[DRAFT_FOLDER_BYTES];
};

/* "draft_model" and "eagle3" need "model", which is the folder; without a method the folder's contents decide. */
static int read_method(struct draft_wishes *w, const json_t *config, struct err *e)
{
    const char *model = json_get_string(config, "model", "", CONFIG, e);
    const char *method = json_get_string(config, "method", model[0] != '\0' ? "draft_model" : "", CONFIG, e);
    if (e->code != ERR_NONE)
        return -1;
    bool head = strcmp(method, "eagle3") == 0, drafts = head || strcmp(method, "draft_model") == 0;
    bool layer = strcmp(method, "mtp") == 0;
    w->shared = strcmp(method, "suffix") == 0;
    if (!drafts && !layer && !w->shared && strcmp(method, "ngram") != 0)
        return ERR(e, ERR_USAGE,
                   CONFIG
                   ": \"method\" is \"%.40s\", expected \"ngram\", \"suffix\", \"draft_model\", \"eagle3\" or \"mtp\"",
                   method);
    if (drafts != (model[0] != '\0'))
        return ERR(e, ERR_USAGE,
                   CONFIG ": \"model\" belongs to the methods \"draft_model\" and \"eagle3\", which need it");
    if (json_object_get(config, "method") != NULL)
        w->kind = head ? DRAFT_HEAD : drafts ? DRAFT_MODEL : layer ? DRAFT_LAYER : DRAFT_ANY;
    if (layer && w->folder[0] != '\0')
        return ERR(e, ERR_USAGE, "--draft-model and \"method\" \"mtp\" in " CONFIG ": expected one of them");
    if (drafts && w->folder[0] != '\0')
        return ERR(e, ERR_USAGE, "--draft-model and \"model\" in " CONFIG ": expected one of them");
    if (strlen(model) >= sizeof w->folder)
        return ERR(e, ERR_USAGE, CONFIG ": \"model\" has %zu bytes, expected fewer than %zu", strlen(model),
                   sizeof w->folder);
    if (drafts)
        (void)snprintf(w->folder, sizeof w->folder, "%s", model);
    return 0;
}

/* Fields of the config for which no option is given. */
static int read_config(struct draft_wishes *w, const char *text, struct err *e)
{
    json_t *config = json_parse(text, strlen(text), CONFIG, e);
    if (config != NULL && !json_is_object(config))
        ERR(e, ERR_USAGE, CONFIG ": found %s, expected an object", json_type_name(config));
    if (e->code == ERR_NONE && check_fields(config, e) == 0 && read_method(w, config, e) == 0) {
        int64_t most = number(config, "num_speculative_tokens", DRAFTS_MAX, e);
        int64_t longest = number(config, "prompt_lookup_max", LOOKUP, e);
        int64_t shortest = number(config, "prompt_lookup_min", LOOKUP, e);
        int64_t ranks = number(config, "draft_tensor_parallel_size", 65536, e);
        w->most = w->most < 0 ? most : w->most;
        w->ranks = w->ranks < 0 ? ranks : w->ranks;
        w->longest = w->longest < 0 ? longest : w->longest;
        w->shortest = w->shortest < 0 ? shortest : w->shortest;
    }
    json_decref(config);
    if (e->code == ERR_NONE)
        return 0;
    e->code = ERR_USAGE;
    return -1;
}

/* The folder of a repository in the Hub's cache. */
static int find_folder(struct draft_wishes *w, struct err *e)
{
    struct repository found;
    int rc = w->folder[0] != '\0' ? repository_find(&found, w->folder, NULL, e) : 0;
    if (rc == 1 && strlen(found.folder) >= sizeof w->folder)
        return ERR(e, ERR_USAGE, "draft model %s: the path of its folder in the Hub's cache is too long", found.name);
    if (rc == 1)
        (void)snprintf(w->folder, sizeof w->folder, "%s", found.folder);
    return rc < 0 ? -1 : 0;
}

static int read_wishes(struct draft_wishes *w, const struct run_options *o, struct err *e)
{
    *w = (struct draft_wishes){
        o->num_speculative_tokens, o->prompt_lookup_max, o->prompt_lookup_min, o->draft_ranks, false, DRAFT_ANY, ""};
    if (o->draft_model != NULL && (o->draft_model[0] == '\0' || strlen(o->draft_model) >= sizeof w->folder))
        return ERR(e, ERR_USAGE, "--draft-model: a name of %zu bytes, expected 1 to %zu", strlen(o->draft_model),
                   sizeof w->folder - 1);
    if (o->draft_model != NULL)
        (void)snprintf(w->folder, sizeof w->folder, "%s", o->draft_model);
    if (o->speculative_config != NULL && read_config(w, o->speculative_config, e) != 0)
        return -1;
    if (w->folder[0] != '\0' && w->shared)
        return ERR(e, ERR_USAGE, "--draft-model and \"method\" \"suffix\" in " CONFIG ": expected one of them");
    if ((w->folder[0] != '\0' || w->kind == DRAFT_LAYER) && (w->longest > 0 || w->shortest > 0))
        return ERR(e, ERR_USAGE,
                   "prompt_lookup_max and prompt_lookup_min belong to the method \"ngram\", not to a draft "
                   "model");
    if (w->ranks > 0 && (w->folder[0] == '\0' || w->kind == DRAFT_HEAD))
        return ERR(
            e, ERR_USAGE,
            "draft_tensor_parallel_size belongs to the method \"draft_model\"; other drafts need no ranks of their "
            "own");
    return 0;
}

static bool asks_for_drafts(const struct run_options *o)
{
    return o->speculative_config != NULL || o->draft_model != NULL || o->num_speculative_tokens > 0 ||
           o->prompt_lookup_max > 0 || o->prompt_lookup_min > 0 || o->draft_ranks > 0;
}

/* As read_wishes; --speculative off leaves no wishes, and nothing is read. */
static int read_active_wishes(struct draft_wishes *w, const struct run_options *o, struct err *e)
{
    *w = (struct draft_wishes){.kind = DRAFT_ANY};
    return o->speculative == SPECULATIVE_OFF ? 0 : read_wishes(w, o, e);
}

int draft_folder(char folder[DRAFT_FOLDER_BYTES], const struct run_options *o, struct err *e)
{
    struct draft_wishes w;
    folder[0] = '\0';
    if (read_active_wishes(&w, o, e) != 0 || find_folder(&w, e) != 0)
        return -1;
    memcpy(folder, w.folder, DRAFT_FOLDER_BYTES);
    return 0;
}

int draft_kind(enum draft_kind *kind, const struct run_options *o, struct err *e)
{
    struct draft_wishes w;
    int rc = read_active_wishes(&w, o, e);
    *kind = rc == 0 ? w.kind : DRAFT_ANY;
    return rc;
}

int draft_ranks(int32_t *n, const struct run_options *o, struct err *e)
{
    struct draft_wishes w;
    int rc = read_active_wishes(&w, o, e);
    *n = rc == 0 && w.ranks > 0 ? (int32_t)w.ranks : 0;
    return rc;
}

/* Missing lengths default as in vLLM: to 5 if both are missing, otherwise to the other one. */
int draft_rules(struct guess_rules *rules, const struct run_options *o, struct err *e)
{
    struct draft_wishes w;
    *rules = (struct guess_rules){0};
    if (o->speculative == SPECULATIVE_ALWAYS && !asks_for_drafts(o))
        return ERR(e, ERR_USAGE,
                   "--speculative always needs --speculative-config, --draft-model or --num-speculative-tokens");
    if (!asks_for_drafts(o))
        return 0;
    if (read_wishes(&w, o, e) != 0)
        return -1;
    if (w.most <= 0)
        return ERR(e, ERR_USAGE,
                   "the number of drafts is missing: --num-speculative-tokens, or "
                   "\"num_speculative_tokens\" in " CONFIG);
    int64_t longest = w.longest > 0 ? w.longest : w.shortest > 0 ? w.shortest : LOOKUP_TOKENS;
    int64_t shortest = w.shortest > 0 ? w.shortest : longest;
    if (shortest > longest)
        return ERR(e, ERR_USAGE, "prompt_lookup_min %lld is more than prompt_lookup_max %lld", (long long)shortest,
                   (long long)longest);
    if (o->speculative != SPECULATIVE_OFF)
        *rules = (struct guess_rules){(int32_t)w.most, (int32_t)shortest, (int32_t)longest,
                                      o->speculative == SPECULATIVE_ALWAYS, w.shared};
    return 0;
}
