/* text/tokenizer/detokenize_load.c - reading the "decoder" part. See detokenize.h. */
#include "base/json.h"
#include "text/tokenizer/detokenize.h"
#include "text/tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STRIP (1 << 20)

void decoder_close(struct decoder *d)
{
    for (size_t i = 0; i < d->n; i++) {
        pattern_close(&d->step[i].pattern);
        free(d->step[i].content);
    }
    free(d->step);
    *d = (struct decoder){0};
}

static int load_strip(struct decoder_step *step, const struct source *l, const json_t *part)
{
    static const char what[] = "decoder Strip";
    step->content = source_member(l, part, "content", what, &step->content_bytes);
    if (step->content == NULL)
        return -1;
    const unsigned char *c = (const unsigned char *)step->content;
    size_t length = c[0] < 0x80 ? 1 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    if (step->content_bytes != length)
        return ERR(l->e, ERR_INPUT, "%s: %s: \"content\" has %zu bytes, expected one character", l->file, what,
                   step->content_bytes);
    int64_t start = json_get_int(part, "start", -1, 0, MAX_STRIP, l->file, l->e);
    int64_t stop = json_get_int(part, "stop", -1, 0, MAX_STRIP, l->file, l->e);
    if (l->e->code == ERR_NONE && (start < 0 || stop < 0))
        return ERR(l->e, ERR_INPUT, "%s: %s lacks \"start\" or \"stop\"", l->file, what);
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return l->e->code != ERR_NONE ? -1 : 0;
}

static int load_step(struct decoder *d, const struct source *l, const json_t *part, const char *type)
{
    static const char *const name[] = {"", "ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace"};
    struct decoder_step *step = &d->step[d->n];
    if (d->n == SOURCE_MAX_MEMBERS)
        return ERR(l->e, ERR_INPUT, "%s: the decoder has more than %d parts", l->file, SOURCE_MAX_MEMBERS);
    for (int i = 1; i < 7; i++)
        if (strcmp(type, name[i]) == 0)
            step->kind = (enum decoder_kind)i;
    d->n++;
    switch ((int)step->kind) {
    case 0:
        return ERR(l->e, ERR_UNSUPPORTED,
                   "%s: decoder type \"%.40s\" is not supported; supported: ByteLevel, ByteFallback, Fuse, Strip, "
                   "Replace, Metaspace, Sequence",
                   l->file, type);
    case DECODER_STRIP:
        return load_strip(step, l, part);
    case DECODER_REPLACE:
        step->content = source_member(l, part, "content", "decoder Replace", &step->content_bytes);
        if (step->content == NULL || normalize_check_growth(&d->growth, l, step->content_bytes, "decoder Replace") != 0)
            return -1;
        return pattern_load(&step->pattern, l, json_object_get(part, "pattern"), "decoder Replace");
    case DECODER_METASPACE:
        return pretokenize_load_metaspace(&step->metaspace, l, part, "decoder Metaspace");
    default:
        return 0;
    }
}

static int load_part(struct decoder *d, const struct source *l, const json_t *part)
{
    const char *type = source_type(l, part, "decoder");
    if (type == NULL)
        return -1;
    if (strcmp(type, "Sequence") != 0)
        return load_step(d, l, part, type);
    const json_t *list = source_sequence(l, part, "decoders", "decoder Sequence");
    if (list == NULL)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (load_part(d, l, json_array_get(list, i)) != 0)
            return -1;
    return 0;
}

static void link_steps(struct decoder *d)
{
    bool joined = false;
    for (size_t i = 0; i < d->n; i++) {
        d->step[i].joined = joined;
        joined = joined || d->step[i].kind == DECODER_FUSE || d->step[i].kind == DECODER_BYTE_LEVEL;
        d->step[i].to_joined = i + 1 == d->n || d->step[i + 1].kind == DECODER_FUSE;
    }
}

int decoder_load(struct decoder *d, const struct source *l, const json_t *part)
{
    if (part == NULL || json_is_null(part))
        return 0;
    d->present = true;
    d->step = err_calloc(l->e, SOURCE_MAX_MEMBERS, sizeof *d->step, "decoder");
    if (d->step == NULL || load_part(d, l, part) != 0)
        return -1;
    link_steps(d);
    return 0;
}

int decoder_load_gpt2(struct decoder *d, const struct source *l)
{
    d->step = err_calloc(l->e, 1, sizeof *d->step, "decoder");
    if (d->step == NULL)
        return -1;
    d->present = true;
    d->n = 1;
    d->step->kind = DECODER_BYTE_LEVEL;
    link_steps(d);
    return 0;
}

static char *copy(const char *text, size_t *bytes, struct err *e)
{
    *bytes = strlen(text);
    char *own = err_calloc(e, *bytes + 1, 1, "decoder");
    return own != NULL ? memcpy(own, text, *bytes) : NULL;
}

int decoder_clean_up(struct decoder *d, struct err *e)
{
    static const char *const replaced[DECODER_CLEAN_UPS][2] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    struct decoder_step *step = err_calloc(e, DECODER_MAX_STEPS, sizeof *step, "decoder");
    if (step == NULL)
        return -1;
    if (d->n > 0)
        memcpy(step, d->step, d->n * sizeof *step);
    free(d->step);
    d->step = step;
    if (d->n > 0)
        step[d->n - 1].to_joined = true;
    for (int i = 0; i < DECODER_CLEAN_UPS; i++) {
        struct decoder_step *one = &step[d->n++];
        *one = (struct decoder_step){.kind = DECODER_REPLACE, .joined = true, .to_joined = true};
        one->pattern.literal = copy(replaced[i][0], &one->pattern.literal_bytes, e);
        one->content = copy(replaced[i][1], &one->content_bytes, e);
    }
    return e->code == ERR_NONE ? 0 : -1;
}
