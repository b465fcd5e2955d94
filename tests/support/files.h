/* tests/support/files.h - temporary folders, and safetensors files for tests. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stddef.h>

/* Makes a new folder under $TMPDIR or /tmp; dies on failure. path: at least 256 bytes. */
void files_make_dir(char *path);

/* Removes a folder and its contents. */
void files_remove_dir(const char *path);

void files_write(const char *dir, const char *name, const void *data, size_t bytes);
void files_write_text(const char *dir, const char *name, const char *text);

/* The same for a path below dir, with the folders on the way. */
void files_write_below(const char *dir, const char *path, const char *text);

/* Returns the whole file, NUL-terminated; dies on failure. The caller frees it. */
char *files_read(const char *dir, const char *name, size_t *bytes);

void files_copy(const char *from_dir, const char *to_dir, const char *name);

/* Finds a tensor in a safetensors file of the test's own (trusted): returns its bytes (borrowed from `file`) and, in
 * shape, up to two dimensions. NULL: it does not exist. */
const void *files_tensor(const char *file, size_t file_bytes, const char *name, long shape[2]);

/* Splits from_dir/model.safetensors into n shards with an index, tensors distributed in turn, in to_dir. */
void files_shard(const char *from_dir, const char *to_dir, int n);

#endif
