/* tests/support/files.c - see files.h. */
#include "tests/support/files.h"

#include <dirent.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void die(const char *what, const char *name)
{
    perror(what);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(99);
}

void files_make_dir(char *path)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(path, 256, "%s/lockstep-test-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(path) == NULL)
        die("mkdtemp", path);
}

void files_remove_dir(const char *path)
{
    DIR *d = opendir(path);
    if (d == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        char file[2048];
        struct stat info;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || lstat(file, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode))
            files_remove_dir(file);
        else
            unlink(file);
    }
    closedir(d);
    rmdir(path);
}

void files_write(const char *dir, const char *name, const void *data, size_t bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0)
        die("write", path);
}

void files_write_text(const char *dir, const char *name, const char *text)
{
    files_write(dir, name, text, strlen(text));
}

void files_write_below(const char *dir, const char *path, const char *text)
{
    char folder[800];
    for (const char *slash = strchr(path, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        (void)snprintf(folder, sizeof folder, "%s/%.*s", dir, (int)(slash - path), path);
        (void)mkdir(folder, 0700);
    }
    files_write_text(dir, path, text);
}

char *files_read(const char *dir, const char *name, size_t *bytes)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    if (f == NULL || fseek(f, 0, SEEK_END) != 0)
        die("read", path);
    *bytes = (size_t)ftell(f);
    rewind(f);
    char *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, f) != *bytes)
        die("read", path);
    data[*bytes] = '\0';
    fclose(f);
    return data;
}

void files_copy(const char *from_dir, const char *to_dir, const char *name)
{
    size_t bytes;
    char *data = files_read(from_dir, name, &bytes);
    files_write(to_dir, name, data, bytes);
    free(data);
}

static json_t *header(const char *file, size_t *data_offset)
{
    uint64_t n;
    memcpy(&n, file, 8);
    *data_offset = 8 + (size_t)n;
    json_t *h = json_loadb(file + 8, (size_t)n, 0, NULL);
    if (h == NULL)
        die("header", "safetensors");
    return h;
}

const void *files_tensor(const char *file, size_t file_bytes, const char *name, long shape[2])
{
    size_t data;
    json_t *h = header(file, &data), *t = json_object_get(h, name);
    const void *at = NULL;
    if (t != NULL) {
        json_t *s = json_object_get(t, "shape");
        for (size_t i = 0; i < 2; i++)
            shape[i] = i < json_array_size(s) ? (long)json_integer_value(json_array_get(s, i)) : 1;
        size_t begin = (size_t)json_integer_value(json_array_get(json_object_get(t, "data_offsets"), 0));
        at = data + begin <= file_bytes ? file + data + begin : NULL;
    }
    json_decref(h);
    return at;
}

/* Writes one shard: tensor k of the header goes to shard k modulo n. */
static void write_shard(const char *dir, const char *name, const char *file, json_t *all, size_t data, int k, int n,
                        json_t *weight_map)
{
    json_t *mine = json_object(), *tensor;
    const char *key;
    size_t at = 0, place = 0;
    char *body = malloc(1);
    json_object_foreach(all, key, tensor)
    {
        if (strcmp(key, "__metadata__") == 0 || place++ % (size_t)n != (size_t)k)
            continue;
        json_t *offsets = json_object_get(tensor, "data_offsets");
        size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0));
        size_t bytes = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
        body = realloc(body, at + bytes + 1);
        memcpy(body + at, file + data + begin, bytes);
        json_object_set_new(mine, key,
                            json_pack("{s:O, s:O, s:[I, I]}", "dtype", json_object_get(tensor, "dtype"), "shape",
                                      json_object_get(tensor, "shape"), "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + bytes)));
        json_object_set_new(weight_map, key, json_string(name));
        at += bytes;
    }
    char *text = json_dumps(mine, JSON_COMPACT);
    uint64_t length = strlen(text);
    char *out = malloc(8 + length + at);
    memcpy(out, &length, 8);
    memcpy(out + 8, text, length);
    memcpy(out + 8 + length, body, at);
    files_write(dir, name, out, 8 + length + at);
    free(out);
    free(text);
    free(body);
    json_decref(mine);
}

void files_shard(const char *from_dir, const char *to_dir, int n)
{
    size_t bytes, data;
    char *file = files_read(from_dir, "model.safetensors", &bytes);
    json_t *all = header(file, &data), *weight_map = json_object();
    for (int k = 0; k < n; k++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", k + 1, n);
        write_shard(to_dir, name, file, all, data, k, n, weight_map);
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", weight_map);
    char *text = json_dumps(index, JSON_INDENT(1));
    files_write(to_dir, "model.safetensors.index.json", text, strlen(text));
    free(text);
    json_decref(index);
    json_decref(all);
    free(file);
}
