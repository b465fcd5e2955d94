/* text/tokenizer/bpe.h - byte-pair encoding of one pre-token, in O(n log n). */
#ifndef TOKENIZER_BPE_H
#define TOKENIZER_BPE_H

#include "text/tokenizer/bonds.h"
#include "text/tokenizer/buffer.h"
#include "text/tokenizer/vocab.h"

struct bpe_merge { /* one entry of the open-addressing table; rank < 0: empty */
    uint64_t pair; /* left id << 32 | right id */
    int32_t rank, id;
};

struct bpe {
    struct vocab vocab;
    struct bpe_merge *merge; /* [n_slots] */
    size_t n_slots;
    struct bonds bonds;
    int32_t byte_char_id[256]; /* id of the printable character that stands for a byte, or -1 */
    int32_t byte_hex_id[256];  /* id of <0xNN>, or -1 */
    int32_t unk_id;            /* -1: none, unknown characters vanish */
    bool fuse_unk, byte_fallback, ignore_merges;
};

struct bpe_candidate { /* a heap entry: merge the symbol at pos with its right neighbour into id */
    int32_t rank, pos, id;
};

struct bpe_scratch {               /* zeroed = empty; one per thread of control */
    int32_t *id, *previous, *next; /* [n_symbols] ids; neighbours, -1: none; a merged-away symbol has id -1 */
    size_t id_capacity, previous_capacity, next_capacity;
    struct bpe_candidate *heap;
    size_t n_heap, heap_capacity;
    struct buffer mapped; /* a word in printable characters */
};

/* From the "model" object. */
int bpe_load(struct bpe *b, const struct source *l, const json_t *model);
/* From vocab.json's object and the text of merges.txt. */
int bpe_load_files(struct bpe *b, const struct source *l, const json_t *vocab, const struct source *merges_source,
                   const char *merges, size_t bytes);
void bpe_close(struct bpe *b);
void bpe_scratch_close(struct bpe_scratch *s);

/* Append the ids of word[0, n) to *out. byte_level: the bytes stand for their printable characters. */
int bpe_encode(const struct bpe *b, struct bpe_scratch *s, const char *word, size_t n, bool byte_level,
               struct token_list *out, struct err *e);

/* token_list's growth, also used elsewhere. */
int bpe_append(struct token_list *list, int32_t id, struct err *e);

#endif
