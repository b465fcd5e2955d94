/* tests/support/models.h - model folders for tests that run the program: copies of parity fixtures with a tokenizer of
 * one token a byte, and edits of their files. */
#ifndef TESTS_SUPPORT_MODELS_H
#define TESTS_SUPPORT_MODELS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the absolute path of the project's demo model ($LOCKSTEP_DEMO or demo/lockstep-stories); dies if it does not
 * exist. */
const char *models_demo(void);

/* Makes a copy of it with enough positions for stories that do not end by themselves; removed at the end of the
 * process. */
const char *models_endless(void);

/* Makes the same copy with one layer and the demo's positions, for a process that does not need endless stories:
 * answers are as long, and made sooner. */
const char *models_shallow(void);

/* Makes a new folder with the fixture's config.json and model.safetensors, and a tokenizer.json for its vocabulary.
 * dir: at least 256 bytes; remove with files_remove_dir. */
void models_fixture(char *dir, const char *name);

/* Writes tokenizer.json with n_ids tokens of one byte each: id 0 is the space, then printable ASCII, then other bytes.
 * n_fixed pairs {id, byte} put a byte at an id, whose former byte moves to the other place. */
void models_write_tokenizer(const char *dir, int n_ids, const int fixed[][2], int n_fixed);

/* Reads the fixture's expectation: *n prompt ids, and the 32 greedy tokens after them. The caller frees both. */
void models_expected(const char *name, int32_t **prompt, int *n, int32_t **tokens);

/* Writes a llama-shaped bf16 checkpoint of about 41 MB with arbitrary weights and a tokenizer, in a new folder. */
void models_write_big(char *dir);

/* Writes the demo with every bfloat16 widened to float32, without change of value, into dir. */
void models_write_wide(const char *dir);

/* For a test of the program whose arguments are a device and, optionally, the most ranks: commands compute there from
 * now on, and models_demo is a float32 copy in a new folder dir, in which every device gives the same tokens. Without
 * arguments nothing changes. Returns the most ranks. dir: at least 256 bytes, remove with files_remove_dir unless it is
 * "". */
int models_for_device(char *dir, int argc, char **argv, int most);

/* Returns the bytes of the folder's model.safetensors. */
size_t models_weight_bytes(const char *dir);

/* Sets (value: JSON text) or removes (value NULL) the member at path "a/b/0/c" of a JSON file of the folder. In
 * model.safetensors only the header changes. */
void models_edit(const char *dir, const char *file, const char *path, const char *value);

/* Overwrites bytes of a tensor of the folder's model.safetensors, from its byte `at` on; gives one another name. */
void models_patch_tensor(const char *dir, const char *tensor, size_t at, const void *to, size_t n);
void models_rename_tensor(const char *dir, const char *from, const char *to);

/* Splits a safetensors file into header and data, and writes one. `header_length` < 0: the true length. */
json_t *models_split(const char *dir, const char *file, char **data, size_t *bytes);
void models_join(const char *dir, const char *file, const char *header, int64_t header_length, const char *data,
                 size_t bytes);

#endif
