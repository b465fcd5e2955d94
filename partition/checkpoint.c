/* partition/checkpoint.c - see checkpoint.h: finding the files of a folder and joining their headers. */
#include "partition/checkpoint.h"

#include "base/dtype.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define INDEX_NAME      "model.safetensors.index.json"
#define INDEX_MAX_BYTES ((size_t)256 << 20)
#define SHORT_PATH      160

const char *checkpoint_short_path(const char *path)
{
    size_t n = strlen(path);
    return n > SHORT_PATH ? path + n - SHORT_PATH : path;
}

/* Text grows by doubling; its capacity is the next power of two, so that the struct need not keep it. */
int checkpoint_add_text(struct checkpoint *c, const char *text, uint32_t *offset, struct err *e)
{
    size_t bytes = strlen(text) + 1, used = c->text_bytes, capacity = 4096;
    while (capacity < used)
        capacity *= 2;
    if (used + bytes > UINT32_MAX)
        return ERR(e, ERR_INPUT, "%s: more than 4 GiB of tensor names", checkpoint_short_path(c->dir));
    if (c->text == NULL || used + bytes > capacity) {
        while (capacity < used + bytes)
            capacity *= 2;
        char *grown = realloc(c->text, capacity);
        if (grown == NULL)
            return ERR(e, ERR_MEMORY, "out of host memory for %zu bytes of tensor names", capacity);
        c->text = grown;
    }
    memcpy(c->text + used, text, bytes);
    *offset = (uint32_t)used;
    c->text_bytes += bytes;
    return 0;
}

/* `bytes` bytes from the start of the file. */
static int read_start(int fd, unsigned char *to, size_t bytes, const char *what, struct err *e)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = pread(fd, to + got, bytes - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ERR(e, ERR_IO, "%s: read %zu of %zu bytes: %s", what, got, bytes,
                       n < 0 ? strerror(errno) : "the file shrank");
        got += (size_t)n;
    }
    return 0;
}

/* Reads the header, 8 + N bytes. N is checked here only to bound the read; the parser checks it again. */
static int read_header(struct checkpoint *c, int file, int fd, const char *what, struct err *e)
{
    struct stat info;
    unsigned char length[8] = {0};
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return ERR(e, ERR_INPUT, "%s: not a regular file", what);
    uint64_t file_bytes = (uint64_t)info.st_size, n = 0;
    if (file_bytes >= sizeof length && read_start(fd, length, sizeof length, what, e) != 0)
        return -1;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | length[i];
    if (file_bytes < 8 || n > file_bytes - 8 || n > CHECKPOINT_MAX_HEADER)
        return checkpoint_parse_header(c, file, what, length, sizeof length, file_bytes, e);
    unsigned char *head = err_calloc(e, (size_t)n + 8, 1, what);
    if (head == NULL)
        return -1;
    int rc = read_start(fd, head, (size_t)n + 8, what, e);
    if (rc == 0)
        rc = checkpoint_parse_header(c, file, what, head, (size_t)n + 8, file_bytes, e);
    free(head);
    return rc;
}

static int open_file(struct checkpoint *c, int file, struct err *e)
{
    char path[sizeof c->dir + NAME_MAX + 2];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", c->dir, checkpoint_file_name(c, file)) >= sizeof path)
        return ERR(e, ERR_INPUT, "%s: the path is too long", checkpoint_short_path(c->dir));
    const char *what = checkpoint_short_path(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ERR(e, ERR_IO, "%s: cannot open: %s", what, strerror(errno));
    int rc = read_header(c, file, fd, what, e);
    (void)close(fd);
    return rc;
}

static int by_name(const void *left, const void *right, void *text)
{
    const struct tensor_info *a = left, *b = right;
    return strcmp((const char *)text + a->name, (const char *)text + b->name);
}

static void sort_by_name(struct checkpoint *c)
{
    if (c->n_tensors > 1)
        qsort_r(c->tensor, (size_t)c->n_tensors, sizeof c->tensor[0], by_name, c->text);
}

int checkpoint_find(const struct checkpoint *c, const char *name)
{
    int low = 0, high = c->n_tensors - 1;
    while (low <= high) {
        int middle = low + (high - low) / 2;
        int order = strcmp(name, checkpoint_tensor_name(c, middle));
        if (order == 0)
            return middle;
        if (order < 0)
            high = middle - 1;
        else
            low = middle + 1;
    }
    return -1;
}

static int add_file(struct checkpoint *c, const char *name, struct err *e)
{
    if (checkpoint_add_text(c, name, &c->file[c->n_files], e) != 0)
        return -1;
    c->n_files++;
    return 0;
}

static int open_single(struct checkpoint *c, const char *name, struct err *e)
{
    c->file = err_calloc(e, 1, sizeof c->file[0], "the list of files");
    if (c->file == NULL || add_file(c, name, e) != 0 || open_file(c, 0, e) != 0)
        return -1;
    sort_by_name(c);
    return 0;
}

/* A plain name of a file in the folder. */
static bool name_is_plain(const json_t *value)
{
    const char *name = json_string_value(value);
    size_t n = json_string_length(value);
    return name != NULL && n > 0 && n == strlen(name) && n <= NAME_MAX && strchr(name, '/') == NULL &&
           strchr(name, '\\') == NULL && strstr(name, "..") == NULL && strcmp(name, ".") != 0;
}

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The distinct files of the weight map, each once, in order of their names. */
static int list_files(struct checkpoint *c, const json_t *map, const char *what, struct err *e)
{
    const char *tensor;
    json_t *value;
    size_t n = 0;
    const char **name = err_calloc(e, json_object_size(map), sizeof *name, "the index");
    c->file = err_calloc(e, CHECKPOINT_MAX_FILES, sizeof c->file[0], "the list of files");
    if (name == NULL || c->file == NULL)
        goto out;
    json_object_foreach((json_t *)map, tensor, value)
    {
        if (!name_is_plain(value)) {
            ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" is mapped to %s \"%.60s\", expected the plain name of a file",
                what, tensor, json_type_name(value), json_is_string(value) ? json_string_value(value) : "");
            goto out;
        }
        name[n++] = json_string_value(value);
    }
    qsort(name, n, sizeof *name, by_text);
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && strcmp(name[i], name[i - 1]) == 0)
            continue;
        if (c->n_files == CHECKPOINT_MAX_FILES)
            ERR(e, ERR_INPUT, "%s: more than %d files, at most that many are accepted", what, CHECKPOINT_MAX_FILES);
        else
            (void)add_file(c, name[i], e);
        if (e->code != ERR_NONE)
            break;
    }
out:
    free(name);
    return e->code == ERR_NONE ? 0 : -1;
}

/* Keep the tensors that the map names, each of which must be in the file given there; ignore all others. */
static int apply_map(struct checkpoint *c, const json_t *map, const char *what, struct err *e)
{
    const char *tensor;
    json_t *value;
    int kept = 0;
    for (int i = 0; i < c->n_tensors; i++) {
        const char *file = json_string_value(json_object_get(map, checkpoint_tensor_name(c, i)));
        if (file == NULL)
            continue;
        if (strcmp(file, checkpoint_file_name(c, c->tensor[i].file)) != 0)
            return ERR(e, ERR_INPUT, "%s: tensor \"%.120s\" is in \"%.60s\", expected only in \"%.60s\"", what,
                       checkpoint_tensor_name(c, i), checkpoint_file_name(c, c->tensor[i].file), file);
        c->tensor[kept++] = c->tensor[i];
    }
    c->n_tensors = kept;
    sort_by_name(c);
    if ((size_t)kept == json_object_size(map))
        return 0;
    json_object_foreach((json_t *)map, tensor, value) if (checkpoint_find(c, tensor) < 0) return ERR(
        e, ERR_INPUT, "%s: tensor \"%.120s\" is not in \"%.60s\", where the index expects it", what, tensor,
        json_string_value(value));
    return ERR(e, ERR_INTERNAL, "%s: %d tensors for %zu entries", what, kept, json_object_size(map));
}

static int open_index(struct checkpoint *c, const char *path, struct err *e)
{
    int rc = -1;
    const char *what = checkpoint_short_path(path);
    json_t *root = json_read_model_file(path, INDEX_MAX_BYTES, e);
    if (root == NULL)
        return -1;
    const json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        ERR(e, ERR_INPUT, "%s: \"weight_map\" is %s of %zu, expected an object of tensor and file names", what,
            json_type_name(map), json_object_size(map));
        goto out;
    }
    if (list_files(c, map, what, e) != 0)
        goto out;
    for (int i = 0; i < c->n_files; i++)
        if (open_file(c, i, e) != 0)
            goto out;
    rc = apply_map(c, map, what, e);
out:
    json_decref(root);
    return rc;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

int checkpoint_refuse_formats(const char *model_dir, struct err *e)
{
    static const struct {
        const char *end, *is, *remedy;
    } table[] = {
        {"adapter_model.safetensors", "an adapter without its base model",
         "merge it with merge_and_unload() and save_pretrained()"},
        {"consolidated.safetensors", "weights in Mistral's own names", "use the repository in Hugging Face format"},
        {".bin", "pickled weights",
         "convert them with from_pretrained(...).save_pretrained(DIR, safe_serialization=True)"},
        {".pth", "pickled weights", "use the repository in Hugging Face format with safetensors"},
        {".pt", "pickled weights", "use the repository in Hugging Face format with safetensors"},
        {".gguf", "GGUF weights", "use the unquantised repository with safetensors"},
        {".h5", "TensorFlow weights", "use the repository with safetensors"},
        {".msgpack", "Flax weights", "use the repository with safetensors"},
    };
    DIR *dir = opendir(model_dir);
    if (dir == NULL)
        return ERR(e, ERR_IO, "%s: cannot open the folder: %s", checkpoint_short_path(model_dir), strerror(errno));
    size_t n = sizeof table / sizeof table[0], best = n;
    char name[NAME_MAX + 1] = "";
    bool loose = false;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        loose = loose || strcmp(entry->d_name, "model.safetensors") == 0 || strcmp(entry->d_name, INDEX_NAME) == 0;
        if (strcmp(entry->d_name, "training_args.bin") == 0)
            continue;
        for (size_t i = 0; i < best; i++)
            if (ends_with(entry->d_name, table[i].end)) {
                best = i;
                (void)snprintf(name, sizeof name, "%s", entry->d_name);
            }
    }
    (void)closedir(dir);
    if (loose || best == n)
        return 0;
    return ERR(e, ERR_UNSUPPORTED, "%s: %.80s is %s, expected model.safetensors; %s", checkpoint_short_path(model_dir),
               name, table[best].is, table[best].remedy);
}

int checkpoint_read_part(const struct checkpoint *c, int tensor, uint64_t from, size_t bytes, void *to, struct err *e)
{
    const struct tensor_info *t = &c->tensor[tensor];
    char path[sizeof c->dir + NAME_MAX + 2];
    (void)snprintf(path, sizeof path, "%s/%s", c->dir, checkpoint_file_name(c, t->file));
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd >= 0 ? pread(fd, to, bytes, (off_t)(t->offset + from)) : -1;
    int why = errno;
    if (fd >= 0)
        (void)close(fd);
    if (got != (ssize_t)bytes)
        return ERR(e, ERR_IO, "%s: cannot read: %s", checkpoint_short_path(path),
                   got < 0 ? strerror(why) : "it has become shorter");
    return 0;
}

int checkpoint_read_tensor(const struct checkpoint *c, int tensor, void *to, struct err *e)
{
    return checkpoint_read_part(c, tensor, 0, c->tensor[tensor].bytes, to, e);
}

int checkpoint_read_number(const struct checkpoint *c, int tensor, float *to, struct err *e)
{
    const struct tensor_info *t = &c->tensor[tensor];
    unsigned char bytes[sizeof(float)];
    enum dtype is = DTYPE_F32;
    while (is < DTYPE_COUNT && strcmp(c->text + t->dtype, dtype_name(is)) != 0)
        is++;
    if (is == DTYPE_COUNT || t->bytes != dtype_bytes(is))
        return ERR(e, ERR_UNSUPPORTED,
                   "%s: tensor \"%.120s\" is %.20s of %llu bytes, expected one number, F32, F16 or BF16",
                   checkpoint_short_path(c->dir), checkpoint_tensor_name(c, tensor), c->text + t->dtype,
                   (unsigned long long)t->bytes);
    if (checkpoint_read_tensor(c, tensor, bytes, e) != 0)
        return -1;
    *to = dtype_load(bytes, is, 0);
    return 0;
}

static int read_scalar(struct checkpoint *c, int tensor, struct err *e)
{
    const struct tensor_info *t = &c->tensor[tensor];
    if (t->bytes != sizeof(float) || strcmp(c->text + t->dtype, "F32") != 0)
        return 0;
    return checkpoint_read_tensor(c, tensor, &c->scalar[tensor], e);
}

/* Reads the per-matrix numbers that multiply the scales: they must be known before the scales are read. */
static int read_scalars(struct checkpoint *c, struct err *e)
{
    for (int i = 0; i < c->n_tensors; i++) {
        const char *name = checkpoint_tensor_name(c, i);
        if (!ends_with(name, ".weight_global_scale") && !ends_with(name, ".weight_scale_2"))
            continue;
        if (c->scalar == NULL && (c->scalar = err_calloc(e, (size_t)c->n_tensors, sizeof *c->scalar, "scales")) == NULL)
            return -1;
        c->n_scalars = c->n_tensors;
        if (read_scalar(c, i, e) != 0)
            return -1;
    }
    return 0;
}

int checkpoint_open(struct checkpoint *c, const char *model_dir, struct err *e)
{
    char path[sizeof c->dir + NAME_MAX + 2];
    struct stat info;
    memset(c, 0, sizeof *c);
    if ((size_t)snprintf(c->dir, sizeof c->dir, "%s", model_dir) >= sizeof c->dir)
        return ERR(e, ERR_INPUT, "%s: the path is too long", checkpoint_short_path(model_dir));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", c->dir);
    int rc = -1;
    if (lstat(path, &info) == 0) {
        rc = open_single(c, "model.safetensors", e);
    } else {
        (void)snprintf(path, sizeof path, "%s/" INDEX_NAME, c->dir);
        if (lstat(path, &info) == 0)
            rc = open_index(c, path, e);
        else if (checkpoint_refuse_formats(model_dir, e) == 0)
            ERR(e, ERR_IO, "%s: holds neither model.safetensors nor " INDEX_NAME ", expected one of them",
                checkpoint_short_path(model_dir));
    }
    if (rc == 0)
        rc = read_scalars(c, e);
    if (rc != 0)
        checkpoint_close(c);
    return rc;
}

void checkpoint_close(struct checkpoint *c)
{
    free(c->tensor);
    free(c->file);
    free(c->text);
    free(c->kv_scale);
    free(c->scalar);
    free(c->input_scale);
    free(c->order_at);
    free(c->drafted);
    free(c->order);
    memset(c, 0, sizeof *c);
}
