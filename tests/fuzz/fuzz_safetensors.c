/* tests/fuzz/fuzz_safetensors.c - libFuzzer target for the safetensors header. The input is the JSON; a header of these
 * bytes is parsed as part of a file with some data after it. An accepted header must fulfil the promises of the
 * checks. */
#include "partition/checkpoint.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check_tensors(const struct checkpoint *c, uint64_t start, uint64_t file_bytes)
{
    uint64_t at = start;
    for (int i = 0; i < c->n_tensors; i++) {
        const struct tensor_info *t = &c->tensor[i];
        must(t->offset == at && t->bytes <= file_bytes - at);
        must(t->n_dims >= 0 && t->n_dims <= CHECKPOINT_MAX_DIMS);
        must(t->name < c->text_bytes && t->dtype < c->text_bytes);
        at += t->bytes;
    }
    must(at == file_bytes && (c->text_bytes == 0 || c->text[c->text_bytes - 1] == '\0'));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    /* The first two bytes give the amount of data after the header, and whether the raw bytes are a file of their
     * own. */
    uint64_t behind = data[0], n = size - 2, file_bytes = 8 + n + behind;
    unsigned char *head = malloc(8 + (size_t)n);
    struct checkpoint c = {0};
    struct err e = {0};
    if (head == NULL)
        return 0;
    memcpy(head + 8, data + 2, (size_t)n);
    for (int i = 0; i < 8; i++)
        head[i] = (unsigned char)(n >> (8 * i));
    if ((data[1] & 15) == 15 && n >= 8)
        memcpy(head, data + 2, 8); /* any header length */
    int rc = checkpoint_parse_header(&c, 0, "fuzz.safetensors", head, 8 + (size_t)n, file_bytes, &e);
    must((rc == 0) == (e.code == ERR_NONE) && (rc == 0 || strstr(e.text, "fuzz.safetensors") != NULL));
    if (rc == 0)
        check_tensors(&c, 8 + n, file_bytes);
    checkpoint_close(&c);
    free(head);
    return 0;
}
