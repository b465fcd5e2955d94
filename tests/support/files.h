/* tests/support/files.h - temporary folders, and safetensors files as tests need them. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <stddef.h>

/* A new folder under $TMPDIR or /tmp; dies on failure. path: at least 256 bytes. */
void files_make_dir(char *path);

/* Remove a folder and what is in it. */
void files_remove_dir(const char *path);

void files_write(const char *dir, const char *name, const void *data, size_t bytes);
void files_write_text(const char *dir, const char *name, const char *text);

/* The whole file, NUL-terminated; dies on failure. The caller frees. */
char *files_read(const char *dir, const char *name, size_t *bytes);

void files_copy(const char *from_dir, const char *to_dir, const char *name);

/* A named tensor of a safetensors file of the test's own (trusted): its bytes (borrowed from `file`) and, in shape, up
 * to two dimensions. NULL when it is not there. */
const void *files_tensor(const char *file, size_t file_bytes, const char *name, long shape[2]);

/* Split from_dir/model.safetensors into n shards with an index, tensors dealt out in turn, in to_dir. */
void files_shard(const char *from_dir, const char *to_dir, int n);

#endif
