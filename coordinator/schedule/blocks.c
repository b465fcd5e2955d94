/* coordinator/schedule/blocks.c - see blocks.h. */
#include "coordinator/schedule/blocks.h"

#include <stdlib.h>
#include <string.h>

static void append(struct blocks *b, int i)
{
    struct block *k = &b->block[i];
    k->older = b->newest;
    k->newer = -1;
    *(b->newest >= 0 ? &b->block[b->newest].newer : &b->oldest) = i;
    b->newest = i;
    b->n_free++;
}

static void prepend(struct blocks *b, int i)
{
    struct block *k = &b->block[i];
    k->newer = b->oldest;
    k->older = -1;
    *(b->oldest >= 0 ? &b->block[b->oldest].older : &b->newest) = i;
    b->oldest = i;
    b->n_free++;
}

static void unlink_free(struct blocks *b, int i)
{
    const struct block *k = &b->block[i];
    *(k->older >= 0 ? &b->block[k->older].newer : &b->oldest) = k->newer;
    *(k->newer >= 0 ? &b->block[k->newer].older : &b->newest) = k->older;
    b->n_free--;
}

static int open_list(struct blocks *b, int most, struct err *e)
{
    *b = (struct blocks){.most = most, .n_buckets = 64, .oldest = -1, .newest = -1};
    while (b->n_buckets < most)
        b->n_buckets *= 2;
    b->block = err_calloc(e, (size_t)most, sizeof *b->block, "KV block list");
    b->bucket = err_calloc(e, (size_t)b->n_buckets, sizeof *b->bucket, "KV block list");
    if (b->block == NULL || b->bucket == NULL)
        return -1;
    memset(b->bucket, 0xff, (size_t)b->n_buckets * sizeof *b->bucket);
    return 0;
}

int blocks_open(struct blocks *b, int n, struct err *e)
{
    if (open_list(b, n, e) != 0)
        return -1;
    b->n = n;
    for (int i = 0; i < n; i++)
        append(b, i);
    return 0;
}

int blocks_open_shared(struct blocks *b, int most, const struct blocks_source *source, struct err *e)
{
    if (open_list(b, most, e) != 0)
        return -1;
    b->source = *source;
    for (int i = 0; i < most; i++)
        b->block[i].away = true;
    return 0;
}

void blocks_close(struct blocks *b)
{
    free(b->block);
    free(b->bucket);
    *b = (struct blocks){0};
}

static int *bucket_of(const struct blocks *b, uint64_t before, const int32_t *token)
{
    uint64_t hash = before;
    for (int i = 0; i < KV_BLOCK_TOKENS; i++) {
        hash = (hash ^ (uint64_t)(uint32_t)token[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return &b->bucket[hash & (uint64_t)(b->n_buckets - 1)];
}

static bool is_same(const struct block *k, uint64_t before, const int32_t *token)
{
    return k->before == before && memcmp(k->token, token, sizeof k->token) == 0;
}

static void forget(struct blocks *b, int i)
{
    struct block *k = &b->block[i];
    int *at = bucket_of(b, k->before, k->token);
    while (*at != i)
        at = &b->block[*at].next_in_bucket;
    *at = k->next_in_bucket;
    k->name = 0;
}

static bool more(struct blocks *b, bool urgent)
{
    return b->source.more != NULL && b->source.more(b->source.context, urgent);
}

bool blocks_have(struct blocks *b, int n)
{
    while (b->n_free < n && more(b, true))
        continue;
    return b->n_free >= n;
}

void blocks_add(struct blocks *b, int first, int n)
{
    for (int i = first + n - 1; i >= first; i--) {
        b->block[i].away = false;
        prepend(b, i);
    }
    b->n += n;
}

void blocks_withdraw(struct blocks *b, int first, int n)
{
    for (int i = first; i < first + n; i++) {
        if (b->block[i].name != 0)
            forget(b, i);
        b->block[i].away = true;
        if (b->block[i].n_holders > 0)
            continue;
        unlink_free(b, i);
        b->n--;
    }
}

int blocks_take(struct blocks *b)
{
    if (b->oldest < 0 || (b->block[b->oldest].name != 0 && !b->block[b->oldest].given_up))
        (void)more(b, b->oldest < 0);
    int i = b->oldest;
    if (i < 0)
        return -1;
    unlink_free(b, i);
    if (b->block[i].name != 0)
        forget(b, i);
    b->block[i].n_holders = 1;
    b->block[i].given_up = false;
    return i;
}

void blocks_hold(struct blocks *b, int block)
{
    if (b->block[block].n_holders++ == 0)
        unlink_free(b, block);
    b->block[block].given_up = false;
}

void blocks_give_back(struct blocks *b, int block)
{
    if (--b->block[block].n_holders > 0)
        return;
    if (b->block[block].away)
        b->n--;
    else if (b->block[block].name != 0)
        append(b, block);
    else
        prepend(b, block);
}

void blocks_give_up(struct blocks *b, int block)
{
    if (--b->block[block].n_holders > 0)
        return;
    b->block[block].given_up = true;
    if (b->block[block].away)
        b->n--;
    else
        prepend(b, block);
}

uint64_t blocks_name(struct blocks *b)
{
    return ++b->n_names;
}

int blocks_find(const struct blocks *b, uint64_t before, const int32_t *token, uint64_t step)
{
    int i = *bucket_of(b, before, token);
    while (i >= 0 && !is_same(&b->block[i], before, token))
        i = b->block[i].next_in_bucket;
    return i >= 0 && b->block[i].step < step ? i : -1;
}

uint64_t blocks_share(struct blocks *b, int block, uint64_t before, const int32_t *token, uint64_t step)
{
    struct block *k = &b->block[block];
    int *bucket = bucket_of(b, before, token);
    for (int i = *bucket; i >= 0; i = b->block[i].next_in_bucket)
        if (is_same(&b->block[i], before, token))
            return b->block[i].name;
    if (k->away)
        return blocks_name(b);
    memcpy(k->token, token, sizeof k->token);
    k->before = before;
    k->step = step;
    k->name = blocks_name(b);
    k->next_in_bucket = *bucket;
    *bucket = block;
    return k->name;
}
