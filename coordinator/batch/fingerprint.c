/* coordinator/batch/fingerprint.c - see fingerprint.h. */
#include "coordinator/batch/fingerprint.h"
#include "base/files.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_SAMPLES      16
#define SAMPLE_BYTES   4096
#define MAX_FILE_BYTES ((size_t)1 << 28) /* largest tokenizer file, as in the tokenizer itself */

/* The files of the tokenizer, as far as they exist. */
static const char *const tokenizer_files[] = {"tokenizer.json",        "vocab.json",          "merges.txt",
                                              "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json",
                                              "chat_template.json"};

static json_t *hex_of(crypto_hash_sha256_state *state)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    char text[2 * sizeof hash + 1];
    (void)crypto_hash_sha256_final(state, hash);
    return json_string(sodium_bin2hex(text, sizeof text, hash, sizeof hash));
}

static void add_bytes(crypto_hash_sha256_state *state, const void *bytes, size_t n)
{
    (void)crypto_hash_sha256_update(state, bytes, n);
}

static int open_in(const char *dir, const char *name, char *path, size_t bytes)
{
    (void)snprintf(path, bytes, "%s/%s", dir, name);
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Name and text of a file; one that does not exist adds nothing. */
static int add_file(crypto_hash_sha256_state *state, const char *dir, const char *name, struct err *e)
{
    char path[4200];
    size_t bytes = 0;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!files_present(path))
        return 0;
    char *text = file_read(path, MAX_FILE_BYTES, &bytes, e);
    if (text == NULL)
        return -1;
    add_bytes(state, name, strlen(name) + 1);
    add_bytes(state, text, bytes);
    free(text);
    return 0;
}

static json_t *hash_files(const char *dir, const char *const *name, size_t n, struct err *e)
{
    crypto_hash_sha256_state state;
    (void)crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < n; i++)
        if (add_file(&state, dir, name[i], e) != 0)
            return NULL;
    return hex_of(&state);
}

static int add_sample(crypto_hash_sha256_state *state, const struct checkpoint *c, const struct tensor_info *t,
                      struct err *e)
{
    char path[4200];
    unsigned char sample[SAMPLE_BYTES];
    size_t want = t->bytes < sizeof sample ? (size_t)t->bytes : sizeof sample;
    int fd = open_in(c->dir, checkpoint_file_name(c, t->file), path, sizeof path);
    ssize_t got = fd >= 0 ? pread(fd, sample, want, (off_t)(t->offset + (t->bytes - want) / 2)) : -1;
    int why = errno;
    if (fd >= 0)
        (void)close(fd);
    if (got != (ssize_t)want)
        return ERR(e, ERR_IO, "%.300s: cannot read: %s", path, got < 0 ? strerror(why) : "it has become shorter");
    add_bytes(state, sample, want);
    return 0;
}

static json_t *hash_weights(const struct checkpoint *c, struct err *e)
{
    crypto_hash_sha256_state state;
    (void)crypto_hash_sha256_init(&state);
    for (int i = 0; i < c->n_tensors; i++) {
        const struct tensor_info *t = &c->tensor[i];
        const char *name = checkpoint_tensor_name(c, i), *type = c->text + t->dtype;
        add_bytes(&state, name, strlen(name) + 1);
        add_bytes(&state, type, strlen(type) + 1);
        add_bytes(&state, t->shape, (size_t)t->n_dims * sizeof *t->shape);
        add_bytes(&state, &t->bytes, sizeof t->bytes);
    }
    for (int k = 0; k < N_SAMPLES && c->n_tensors > 0; k++)
        if (add_sample(&state, c, &c->tensor[(int64_t)k * c->n_tensors / N_SAMPLES], e) != 0)
            return NULL;
    return hex_of(&state);
}

json_t *fingerprint_model(const struct checkpoint *c, struct err *e)
{
    static const char *const config = "config.json", *const generation = "generation_config.json";
    json_t *object = json_object();
    if (json_object_set_new(object, "config_sha256", hash_files(c->dir, &config, 1, e)) != 0 ||
        json_object_set_new(object, "generation_config_sha256", hash_files(c->dir, &generation, 1, e)) != 0 ||
        json_object_set_new(object, "tokenizer_sha256",
                            hash_files(c->dir, tokenizer_files, sizeof tokenizer_files / sizeof *tokenizer_files, e)) !=
            0 ||
        json_object_set_new(object, "weights_sha256", hash_weights(c, e)) != 0) {
        json_decref(object);
        ERR(e, ERR_MEMORY, "out of host memory: hashes of the model"); /* the first failure wins */
        return NULL;
    }
    return object;
}
