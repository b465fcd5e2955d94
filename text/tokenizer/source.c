/* text/tokenizer/source.c - see source.h. */
#include "text/tokenizer/source.h"

#include "base/files.h"
#include "base/json.h"
#include "text/tokenizer/internal.h"
#include "text/tokenizer/unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PATH_BYTES 4096

size_t source_restore(const struct source *l, char *text, size_t n)
{
    if (!l->has_nul)
        return n;
    size_t k = 0;
    for (size_t i = 0; i < n;) {
        if (n - i >= 4 && memcmp(text + i, SOURCE_NUL_STAND_IN, 4) == 0) {
            text[k++] = '\0';
            i += 4;
        } else {
            text[k++] = text[i++];
        }
    }
    return k;
}

char *source_string(const struct source *l, const json_t *value, const char *what, size_t *bytes)
{
    if (!json_is_string(value)) {
        ERR(l->e, ERR_INPUT, "%s: %s is %s, expected a string", l->file, what, json_type_name(value));
        return NULL;
    }
    size_t n = json_string_length(value);
    char *text = err_calloc(l->e, n + 1, 1, what);
    if (text == NULL)
        return NULL;
    memcpy(text, json_string_value(value), n);
    *bytes = source_restore(l, text, n);
    text[*bytes] = '\0';
    return text;
}

char *source_member(const struct source *l, const json_t *object, const char *key, const char *what, size_t *bytes)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_string(value))
        return source_string(l, value, what, bytes);
    ERR(l->e, ERR_INPUT, "%s: %s: \"%s\" is %s, expected a string", l->file, what, key, json_type_name(value));
    return NULL;
}

bool source_bool(const struct source *l, const json_t *object, const char *key, int missing, const char *what)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_boolean(value))
        return json_boolean_value(value);
    if ((value == NULL || json_is_null(value)) && missing >= 0)
        return missing != 0;
    ERR(l->e, ERR_INPUT, "%s: %s: \"%s\" is %s, expected true or false", l->file, what, key, json_type_name(value));
    return false;
}

const char *source_type(const struct source *l, const json_t *part, const char *what)
{
    const json_t *type = json_object_get(part, "type");
    if (!json_is_object(part)) {
        ERR(l->e, ERR_INPUT, "%s: the %s is %s, expected an object", l->file, what, json_type_name(part));
        return NULL;
    }
    if (type != NULL && !json_is_string(type)) {
        ERR(l->e, ERR_INPUT, "%s: the \"type\" of the %s is %s, expected a string", l->file, what,
            json_type_name(type));
        return NULL;
    }
    return type == NULL ? "" : json_string_value(type);
}

const json_t *source_sequence(const struct source *l, const json_t *part, const char *key, const char *what)
{
    const json_t *list = json_object_get(part, key);
    if (json_is_array(list))
        return list;
    ERR(l->e, ERR_INPUT, "%s: %s: \"%s\" is %s, expected an array", l->file, what, key, json_type_name(list));
    return NULL;
}

/* The text of a JSON file in which \u0000 became the stand-in, malloc'ed; NULL and *e on failure. */
static char *replace_nul(struct source *l, const char *json, size_t bytes, size_t *new_bytes)
{
    struct buffer out = {0};
    bool has_stand_in = memmem(json, bytes, SOURCE_NUL_STAND_IN, 4) != NULL;
    size_t done = 0;
    for (size_t i = 0; i + 1 < bytes; i++) {
        if (json[i] != '\\')
            continue;
        if (bytes - i >= 6 && memcmp(json + i, "\\u0000", 6) == 0) {
            buffer_add(&out, json + done, i - done);
            buffer_string(&out, SOURCE_NUL_STAND_IN);
            done = i + 6;
            l->has_nul = true;
        } else if (bytes - i >= 12 && strncasecmp(json + i, "\\udbff\\udfff", 12) == 0) {
            has_stand_in = true;
        }
        i++; /* an escaped backslash does not begin an escape */
    }
    buffer_add(&out, json + done, bytes - done);
    buffer_add(&out, "", 1);
    if (buffer_check(&out, l->e) == 0 && !(l->has_nul && has_stand_in)) {
        *new_bytes = out.bytes - 1;
        return out.data;
    }
    ERR(l->e, ERR_UNSUPPORTED, "%s: a file with both U+0000 and U+10FFFF is not supported", l->file);
    buffer_free(&out);
    return NULL;
}

static json_t *parse(struct source *l, const char *json, size_t bytes)
{
    size_t new_bytes = 0;
    char *text = replace_nul(l, json, bytes, &new_bytes);
    json_t *root = text == NULL ? NULL : json_parse_model(text, new_bytes, l->file, l->e);
    free(text);
    return root;
}

static int load_parts(struct tokenizer *t, const struct source *l, const json_t *root)
{
    if (!json_is_object(root))
        return ERR(l->e, ERR_INPUT, "%s: the file holds %s, expected an object", l->file, json_type_name(root));
    const json_t *version = json_object_get(root, "version");
    if (version != NULL && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return ERR(l->e, ERR_UNSUPPORTED, "%s: \"version\" is %.40s, expected \"1.0\"", l->file,
                   json_is_string(version) ? json_string_value(version) : json_type_name(version));
    if (bpe_load(&t->bpe, l, json_object_get(root, "model")) != 0 ||
        normalize_load(&t->normalizer, l, json_object_get(root, "normalizer")) != 0 ||
        pretokenize_load(&t->pretokenizer, l, json_object_get(root, "pre_tokenizer")) != 0 ||
        added_load(&t->added, l, json_object_get(root, "added_tokens"), &t->bpe.vocab, &t->normalizer) != 0 ||
        template_load(&t->template, l, json_object_get(root, "post_processor"), tokenizer_vocab_size(t)) != 0)
        return -1;
    return decoder_load(&t->decoder, l, json_object_get(root, "decoder"));
}

int source_load_text(struct tokenizer *t, const char *json, size_t bytes, const char *file, struct err *e)
{
    struct source l = {.file = file, .e = e};
    if (bytes > SOURCE_MAX_BYTES)
        return ERR(e, ERR_INPUT, "%s: %zu bytes, at most %zu are accepted", file, bytes, SOURCE_MAX_BYTES);
    json_t *root = parse(&l, json, bytes);
    int rc = root == NULL ? -1 : load_parts(t, &l, root);
    json_decref(root);
    return rc;
}

/* vocab.json and merges.txt: the behaviour of GPT-2's own tokenizer. */
static int load_vocab_merges(struct tokenizer *t, const char *vocab_path, const char *merges_path, struct err *e)
{
    struct source vocab_source = {.file = vocab_path, .e = e}, merges_source = {.file = merges_path, .e = e};
    size_t bytes = 0, merges_bytes = 0;
    json_t *root = NULL;
    char *merges = NULL, *vocab = file_read_text(vocab_path, SOURCE_MAX_BYTES, &bytes, e);
    int rc = -1;
    if (vocab != NULL)
        root = parse(&vocab_source, vocab, bytes);
    if (root != NULL)
        merges = file_read_text(merges_path, SOURCE_MAX_BYTES, &merges_bytes, e);
    if (merges != NULL && utf8_invalid_at(merges, merges_bytes) < merges_bytes)
        ERR(e, ERR_INPUT, "%s: invalid UTF-8 at byte %zu", merges_path, utf8_invalid_at(merges, merges_bytes));
    else if (merges != NULL &&
             bpe_load_files(&t->bpe, &vocab_source, root, &merges_source, merges, merges_bytes) == 0 &&
             pretokenize_load_gpt2(&t->pretokenizer, &vocab_source, false) == 0)
        rc = decoder_load_gpt2(&t->decoder, &vocab_source);
    free(vocab);
    free(merges);
    json_decref(root);
    return rc;
}

/* A special token of tokenizer_config.json: a string, or an object with "content". The id, or -1 and *e. */
static int32_t config_token(const struct tokenizer *t, const struct source *l, const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return ERR(l->e, ERR_INPUT, "%s: \"%s\" is %s, expected a token, because \"add_%.3s_token\" is true", l->file,
                   key, json_type_name(value), key);
    int32_t id = tokenizer_find(t, json_string_value(value), json_string_length(value));
    if (id < 0)
        ERR(l->e, ERR_INPUT, "%s: \"%s\" is \"%.60s\", which is not in the vocabulary", l->file, key,
            json_string_value(value));
    return id;
}

/* add_bos_token and add_eos_token rebuild the template, for the classes of transformers that do so; `plain_files`: the
 * vocabulary comes from vocab.json, where only bos counts (OPT). */
static int apply_bos_eos(struct tokenizer *t, const struct source *l, const json_t *config, bool plain_files)
{
    static const char *const class[] = {"Llama", "CodeLlama", "Gemma", "Cohere"};
    const json_t *name = json_object_get(config, "tokenizer_class"), *bos = json_object_get(config, "add_bos_token"),
                 *eos = json_object_get(config, "add_eos_token");
    bool applies = plain_files || !json_is_string(name);
    for (size_t i = 0; !applies && i < sizeof class / sizeof class[0]; i++) {
        size_t n = strlen(class[i]);
        applies = strncmp(json_string_value(name), class[i], n) == 0 &&
                  strncmp(json_string_value(name) + n, "Tokenizer", 9) == 0;
    }
    if (!applies || !(json_is_boolean(bos) || json_is_boolean(eos)))
        return 0;
    /* A class that rebuilds the template adds bos and no eos by default. */
    bool add_bos = json_is_boolean(bos) ? json_boolean_value(bos) : !plain_files;
    bool add_eos = json_is_boolean(eos) && json_boolean_value(eos) && !plain_files;
    int32_t bos_id = add_bos ? config_token(t, l, config, "bos_token") : -1;
    int32_t eos_id = add_eos ? config_token(t, l, config, "eos_token") : -1;
    return l->e->code != ERR_NONE ? -1 : template_set(&t->template, bos_id, eos_id, l->e);
}

/* tokenizer_config.json, which may be absent */
static int load_config(struct tokenizer *t, const char *path, bool plain_files, struct err *e)
{
    struct source l = {.file = path, .e = e};
    if (!files_present(path))
        return 0;
    json_t *config = json_read_model_file(path, SOURCE_MAX_BYTES, e);
    if (config == NULL)
        return -1;
    if (!json_is_object(config)) {
        ERR(e, ERR_INPUT, "%s: %s, expected an object", path, json_type_name(config));
        json_decref(config);
        return -1;
    }
    const json_t *space = json_object_get(config, "add_prefix_space");
    struct pretokenizer *p = &t->pretokenizer;
    if (json_is_boolean(space) && p->top_level_type && p->n == 1 && p->step->kind == PRETOKENIZE_BYTE_LEVEL)
        p->step->add_prefix_space = json_boolean_value(space);
    int rc = apply_bos_eos(t, &l, config, plain_files);
    if (rc == 0 && json_is_true(json_object_get(config, "clean_up_tokenization_spaces")))
        rc = decoder_clean_up(&t->decoder, e);
    json_decref(config);
    return rc;
}

static int join_path(char *path, const char *folder, const char *name, struct err *e)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return n < PATH_BYTES ? 0 : ERR(e, ERR_INPUT, "%.200s...: the path is longer than %d bytes", folder, PATH_BYTES);
}

int source_load_folder(struct tokenizer *t, const char *model_dir, struct err *e)
{
    char json[PATH_BYTES], vocab[PATH_BYTES], merges[PATH_BYTES], model[PATH_BYTES], config[PATH_BYTES];
    if (join_path(json, model_dir, "tokenizer.json", e) != 0 || join_path(vocab, model_dir, "vocab.json", e) != 0 ||
        join_path(merges, model_dir, "merges.txt", e) != 0 || join_path(model, model_dir, "tokenizer.model", e) != 0 ||
        join_path(config, model_dir, "tokenizer_config.json", e) != 0)
        return -1;
    if (files_present(json)) {
        size_t bytes = 0;
        char *text = file_read_text(json, SOURCE_MAX_BYTES, &bytes, e);
        int rc = text == NULL ? -1 : source_load_text(t, text, bytes, json, e);
        free(text);
        return rc != 0 ? -1 : load_config(t, config, false, e);
    }
    if (files_present(vocab) && files_present(merges))
        return load_vocab_merges(t, vocab, merges, e) != 0 ? -1 : load_config(t, config, true, e);
    if (files_present(model))
        return ERR(e, ERR_UNSUPPORTED,
                   "%s: a SentencePiece model is not read; write tokenizer.json beside it with transformers' "
                   "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
                   model);
    return ERR(e, ERR_IO, "%s: found neither tokenizer.json nor vocab.json with merges.txt", model_dir);
}
