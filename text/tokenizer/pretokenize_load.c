/* text/tokenizer/pretokenize_load.c - reading the "pre_tokenizer" part. See pretokenize.h. */
#include "base/json.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

static const char gpt2_regex[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void pretokenize_close(struct pretokenizer *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_close(&p->step[i].pattern);
    free(p->step);
    *p = (struct pretokenizer){0};
}

/* The index of a string member among n words; -1 and *e if it is none of them. */
static int load_word(const struct source *l, const json_t *part, const char *key, const char *const *word, int n,
                     int missing, const char *what)
{
    char expected[160] = "";
    size_t used = 0;
    const char *value = json_get_string(part, key, missing < 0 ? "" : word[missing], l->file, l->e);
    if (l->e->code != ERR_NONE)
        return -1;
    for (int i = 0; i < n; i++) {
        if (strcmp(word[i], value) == 0)
            return i;
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i > 0 ? ", " : "", word[i]);
    }
    return ERR(l->e, ERR_INPUT, "%s: %s: \"%s\" is \"%.40s\", expected one of %s", l->file, what, key, value, expected);
}

static int load_behavior(struct pretokenize_step *step, const struct source *l, const json_t *part, int missing,
                         const char *what)
{
    static const char *const word[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    int i = load_word(l, part, "behavior", word, 5, missing, what);
    step->behavior = i < 0 ? BEHAVIOR_ISOLATED : (enum pretokenize_behavior)i;
    return i < 0 ? -1 : 0;
}

int pretokenize_load_metaspace(struct pretokenize_step *step, const struct source *l, const json_t *part,
                               const char *what)
{
    static const char *const word[] = {"always", "first", "never"};
    int32_t cp;
    char *text = source_member(l, part, "replacement", what, &step->replacement_bytes);
    if (text == NULL)
        return -1;
    bool single = step->replacement_bytes > 0 && (size_t)utf8_next(text, &cp) == step->replacement_bytes;
    if (single)
        memcpy(step->replacement, text, step->replacement_bytes);
    free(text);
    if (!single)
        return ERR(l->e, ERR_INPUT, "%s: %s: \"replacement\" has %zu bytes, expected one character", l->file, what,
                   step->replacement_bytes);
    int scheme = load_word(l, part, "prepend_scheme", word, 3, 0, what);
    if (scheme < 0)
        return -1;
    bool named = json_object_get(part, "prepend_scheme") != NULL;
    if (!source_bool(l, part, "add_prefix_space", 1, what)) {
        if (named && scheme != METASPACE_NEVER)
            return ERR(l->e, ERR_INPUT, "%s: %s: \"add_prefix_space\" is false, but \"prepend_scheme\" is \"%s\"",
                       l->file, what, word[scheme]);
        scheme = METASPACE_NEVER;
    }
    step->prepend = (enum metaspace_prepend)scheme;
    step->split = source_bool(l, part, "split", 1, what);
    return l->e->code != ERR_NONE ? -1 : 0;
}

static int load_step(struct pretokenizer *p, const struct source *l, const json_t *part, const char *type)
{
    struct pretokenize_step *step = &p->step[p->n];
    if (p->n == SOURCE_MAX_MEMBERS)
        return ERR(l->e, ERR_INPUT, "%s: the pre_tokenizer has more than %d parts", l->file, SOURCE_MAX_MEMBERS);
    p->n++;
    if (strcmp(type, "ByteLevel") == 0) {
        step->kind = PRETOKENIZE_BYTE_LEVEL;
        step->add_prefix_space = source_bool(l, part, "add_prefix_space", -1, "pre_tokenizer ByteLevel");
        step->use_regex = source_bool(l, part, "use_regex", 1, "pre_tokenizer ByteLevel");
        if (l->e->code != ERR_NONE)
            return -1;
        return step->use_regex ? pattern_open(&step->pattern, l, gpt2_regex, sizeof gpt2_regex - 1, "ByteLevel") : 0;
    }
    if (strcmp(type, "Split") == 0) {
        step->kind = PRETOKENIZE_SPLIT;
        step->invert = source_bool(l, part, "invert", -1, "pre_tokenizer Split");
        if (l->e->code != ERR_NONE || load_behavior(step, l, part, -1, "pre_tokenizer Split") != 0)
            return -1;
        return pattern_load(&step->pattern, l, json_object_get(part, "pattern"), "pre_tokenizer Split");
    }
    if (strcmp(type, "Digits") == 0) {
        step->kind = PRETOKENIZE_DIGITS;
        bool individual = source_bool(l, part, "individual_digits", -1, "pre_tokenizer Digits");
        step->behavior = individual ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
        return l->e->code != ERR_NONE ? -1 : 0;
    }
    if (strcmp(type, "Punctuation") == 0) {
        step->kind = PRETOKENIZE_PUNCTUATION;
        return load_behavior(step, l, part, 0, "pre_tokenizer Punctuation");
    }
    if (strcmp(type, "Metaspace") == 0) {
        step->kind = PRETOKENIZE_METASPACE;
        step->behavior = BEHAVIOR_NEXT;
        return pretokenize_load_metaspace(step, l, part, "pre_tokenizer Metaspace");
    }
    return ERR(l->e, ERR_UNSUPPORTED,
               "%s: pre_tokenizer type \"%.40s\" is not supported; supported: ByteLevel, Split, Digits, Punctuation, "
               "Metaspace, Sequence",
               l->file, type);
}

static int load_part(struct pretokenizer *p, const struct source *l, const json_t *part)
{
    const char *type = source_type(l, part, "pre_tokenizer");
    if (type == NULL)
        return -1;
    if (strcmp(type, "Sequence") != 0)
        return load_step(p, l, part, type);
    const json_t *list = source_sequence(l, part, "pretokenizers", "pre_tokenizer Sequence");
    if (list == NULL)
        return -1;
    p->top_level_type = false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (load_part(p, l, json_array_get(list, i)) != 0)
            return -1;
    return 0;
}

int pretokenize_load(struct pretokenizer *p, const struct source *l, const json_t *part)
{
    if (part == NULL || json_is_null(part))
        return 0;
    p->step = err_calloc(l->e, SOURCE_MAX_MEMBERS, sizeof *p->step, "pre_tokenizer");
    p->top_level_type = true;
    if (p->step == NULL || load_part(p, l, part) != 0)
        return -1;
    p->byte_level = p->n > 0 && p->step[p->n - 1].kind == PRETOKENIZE_BYTE_LEVEL;
    return 0;
}

int pretokenize_load_gpt2(struct pretokenizer *p, const struct source *l, bool add_prefix_space)
{
    p->step = err_calloc(l->e, 1, sizeof *p->step, "pre_tokenizer");
    if (p->step == NULL)
        return -1;
    p->n = 1;
    p->byte_level = p->top_level_type = true;
    p->step->kind = PRETOKENIZE_BYTE_LEVEL;
    p->step->add_prefix_space = add_prefix_space;
    p->step->use_regex = true;
    return pattern_open(&p->step->pattern, l, gpt2_regex, sizeof gpt2_regex - 1, "ByteLevel");
}
