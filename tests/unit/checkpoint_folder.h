/* tests/unit/checkpoint_folder.h - writes small checkpoint folders, valid and invalid, and checks the errors that they
 * cause. For test_config, test_safetensors, test_weights and test_read_plan. */
#ifndef TESTS_UNIT_CHECKPOINT_FOLDER_H
#define TESTS_UNIT_CHECKPOINT_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/err.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct folder {
    char path[64];
};

static inline void folder_make(struct folder *f)
{
    (void)snprintf(f->path, sizeof f->path, "/tmp/lockstep_test_XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

static inline void folder_write(const struct folder *f, const char *name, const void *bytes, size_t n)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static inline void folder_write_text(const struct folder *f, const char *name, const char *text)
{
    folder_write(f, name, text, strlen(text));
}

static inline void folder_remove(const struct folder *f)
{
    char path[512];
    DIR *dir = opendir(f->path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        (void)snprintf(path, sizeof path, "%s/%s", f->path, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)remove(path);
    }
    (void)closedir(dir);
    assert_int_equal(rmdir(f->path), 0);
}

/* A tensor to write; rows 0: a vector; matrices > 0: that many matrices of rows x cols, as three dimensions. Its bytes
 * are random, from its seed. */
struct tensor_spec {
    char name[100];
    const char *dtype;
    int64_t rows, cols;
    int element; /* bytes */
    unsigned char *data;
    size_t bytes;
    int matrices;
};

static inline uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline void spec_fill(struct tensor_spec *t, uint64_t *state)
{
    t->bytes = (size_t)(t->rows > 0 ? t->rows : 1) * (size_t)t->cols * (size_t)t->element;
    t->bytes *= (size_t)(t->matrices > 0 ? t->matrices : 1);
    t->data = malloc(t->bytes + 1);
    assert_non_null(t->data);
    for (size_t i = 0; i < t->bytes; i++)
        t->data[i] = (unsigned char)next_random(state);
}

/* Writes specs [0, n) as one safetensors file, in their order. `pad` spaces after the header shift the data. */
static inline void folder_write_tensors(const struct folder *f, const char *name, const struct tensor_spec *spec, int n,
                                        int pad)
{
    size_t room = 64 + (size_t)n * 256 + (size_t)pad, used = 8, at = 0, total = 0;
    for (int i = 0; i < n; i++)
        total += spec[i].bytes;
    unsigned char *file = malloc(room + total);
    assert_non_null(file);
    char *text = (char *)file;
    used += (size_t)snprintf(text + used, room - used, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < n; i++) {
        const struct tensor_spec *t = &spec[i];
        char rows[32] = "", matrices[32] = "";
        if (t->rows > 0)
            (void)snprintf(rows, sizeof rows, "%" PRId64 ",", t->rows);
        if (t->matrices > 0)
            (void)snprintf(matrices, sizeof matrices, "%d,", t->matrices);
        used += (size_t)snprintf(text + used, room - used,
                                 ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s%s%" PRId64 "],\"data_offsets\":[%zu,%zu]}",
                                 t->name, t->dtype, matrices, rows, t->cols, at, at + t->bytes);
        at += t->bytes;
    }
    used += (size_t)snprintf(text + used, room - used, "}%*s", pad, "");
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)(used - 8) >> (8 * i));
    for (int i = 0; i < n; i++) {
        memcpy(file + used, spec[i].data, spec[i].bytes);
        used += spec[i].bytes;
    }
    folder_write(f, name, file, used);
    free(file);
}

static inline void specs_free(struct tensor_spec *spec, int n)
{
    for (int i = 0; i < n; i++)
        free(spec[i].data);
}

/* Expects one line with the given code that contains every one of the '|'-separated needles. */
static inline void expect_error(const struct err *e, enum err_code code, const char *needles)
{
    if (e->code != code)
        print_error("code %d, expected %d: \"%s\" (looking for \"%s\")\n", e->code, code, e->text, needles);
    assert_int_equal(e->code, code);
    assert_null(strchr(e->text, '\n'));
    assert_true(strlen(e->text) < sizeof e->text - 1);
    for (const char *from = needles; *from != '\0';) {
        char needle[160];
        size_t n = strcspn(from, "|");
        (void)snprintf(needle, sizeof needle, "%.*s", (int)n, from);
        if (strstr(e->text, needle) == NULL)
            print_error("\"%s\" is not in \"%s\"\n", needle, e->text);
        assert_non_null(strstr(e->text, needle));
        from += n + (from[n] == '|' ? 1 : 0);
    }
}

#endif
