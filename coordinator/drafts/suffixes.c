/* coordinator/drafts/suffixes.c - see suffixes.h. A state stands for suffixes that occur at the same positions, with
 * lengths from its link's length + 1 to its own. The link of the whole text's state is the longest suffix that occurred
 * before. */
#include "coordinator/drafts/suffixes.h"

#include <stdlib.h>
#include <string.h>

#define NEAREST \
    32 /* states whose latest position is updated per token; others keep an earlier position, which is
                      also correct */

struct state {
    int32_t length, link; /* link of the first state, which is the empty text: -1 */
    int32_t latest;       /* index of the last token of its latest occurrence before the newest token */
    int32_t first;        /* edge, or -1 */
};

struct edge {
    int32_t from, token, to;
    int32_t next;      /* of the same state, or -1 */
    int32_t in_bucket; /* the next one there, as bucket */
};

struct suffixes {
    int n, capacity;     /* tokens */
    int32_t *text;       /* [capacity] */
    struct state *state; /* [2 capacity + 1] */
    struct edge *edge;   /* [3 capacity + 1] */
    int32_t *bucket;     /* [n_buckets] number of the first edge + 1; 0: none */
    uint32_t n_buckets;  /* a power of two */
    int n_states, n_edges;
    int32_t last; /* the state of the whole text */
};

static void begin_root(struct suffixes *x)
{
    x->n = x->n_edges = 0;
    x->n_states = 1;
    x->last = 0;
    x->state[0] = (struct state){.link = -1, .latest = -1, .first = -1};
}

int suffixes_open(struct suffixes **out, int64_t n_tokens, struct err *e)
{
    struct suffixes *x = *out = err_calloc(e, 1, sizeof *x, "suffixes");
    if (x == NULL)
        return -1;
    x->capacity = n_tokens < 2 ? 2 : n_tokens > SUFFIXES_MOST ? SUFFIXES_MOST : (int)n_tokens;
    for (x->n_buckets = 4; x->n_buckets < 3 * (uint32_t)x->capacity;)
        x->n_buckets *= 2;
    size_t n = (size_t)x->capacity;
    x->text = err_calloc(e, n, sizeof *x->text, "suffixes");
    x->state = err_calloc(e, 2 * n + 1, sizeof *x->state, "suffixes");
    x->edge = err_calloc(e, 3 * n + 1, sizeof *x->edge, "suffixes");
    x->bucket = err_calloc(e, x->n_buckets, sizeof *x->bucket, "suffixes");
    if (e->code != ERR_NONE) {
        suffixes_close(out);
        return -1;
    }
    begin_root(x);
    return 0;
}

void suffixes_close(struct suffixes **x)
{
    if (*x == NULL)
        return;
    free((*x)->text);
    free((*x)->state);
    free((*x)->edge);
    free((*x)->bucket);
    free(*x);
    *x = NULL;
}

static int32_t *bucket_of(const struct suffixes *x, int32_t from, int32_t token)
{
    uint64_t key = (uint64_t)(uint32_t)from << 32 | (uint32_t)token;
    key *= 0x9e3779b97f4a7c15u;
    return &x->bucket[(key ^ key >> 32) >> 16 & (x->n_buckets - 1)];
}

static struct edge *find_edge(const struct suffixes *x, int32_t from, int32_t token)
{
    for (int32_t i = *bucket_of(x, from, token); i > 0; i = x->edge[i - 1].in_bucket)
        if (x->edge[i - 1].from == from && x->edge[i - 1].token == token)
            return &x->edge[i - 1];
    return NULL;
}

static void connect(struct suffixes *x, int32_t from, int32_t token, int32_t to)
{
    int32_t *bucket = bucket_of(x, from, token), i = x->n_edges++;
    x->edge[i] = (struct edge){from, token, to, x->state[from].first, *bucket};
    x->state[from].first = i;
    *bucket = i + 1;
}

/* Splits `of`: a new state takes over its suffixes of up to one token more than p's. */
static int32_t divide(struct suffixes *x, int32_t p, int32_t token, int32_t of)
{
    int32_t half = x->n_states++;
    x->state[half] = x->state[of];
    x->state[half].length = x->state[p].length + 1;
    x->state[half].first = -1;
    for (int32_t i = x->state[of].first; i >= 0; i = x->edge[i].next)
        connect(x, half, x->edge[i].token, x->edge[i].to);
    x->state[of].link = half;
    for (struct edge *edge; p >= 0 && (edge = find_edge(x, p, token)) != NULL && edge->to == of; p = x->state[p].link)
        edge->to = half;
    return half;
}

/* Updates the positions of the text's suffixes, which until now were earlier ones. */
static void renew_places(struct suffixes *x)
{
    int32_t at = x->last;
    for (int i = 0; i <= NEAREST && at > 0; i++, at = x->state[at].link)
        x->state[at].latest = x->n - 1;
}

static void append_token(struct suffixes *x, int32_t token)
{
    renew_places(x);
    int32_t p = x->last, now = x->n_states++;
    x->state[now] = (struct state){.length = x->n + 1, .latest = x->n, .first = -1};
    x->text[x->n++] = token;
    x->last = now;
    struct edge *edge = NULL;
    for (; p >= 0 && (edge = find_edge(x, p, token)) == NULL; p = x->state[p].link)
        connect(x, p, token, now);
    if (p < 0)
        return; /* link 0 */
    int32_t q = edge->to;
    x->state[now].link = x->state[q].length == x->state[p].length + 1 ? q : divide(x, p, token, q);
}

void suffixes_clear(struct suffixes *x)
{
    memset(x->bucket, 0, x->n_buckets * sizeof *x->bucket);
    begin_root(x);
}

int suffixes_room(const struct suffixes *x)
{
    return x->capacity - x->n;
}

/* Keeps only the latter half. */
static void forget(struct suffixes *x)
{
    int from = x->n / 2, n = x->n - from;
    suffixes_clear(x);
    for (int i = 0; i < n; i++)
        append_token(x, x->text[from + i]); /* which writes text[i], read before */
}

void suffixes_add(struct suffixes *x, int32_t token)
{
    if (x->n == x->capacity)
        forget(x);
    append_token(x, token);
}

int suffixes_follow(const struct suffixes *x, int shortest, int longest, int n, int32_t *token, int *n_equal)
{
    int32_t at = x->n > 0 ? x->state[x->last].link : -1;
    *n_equal = 0;
    if (at <= 0 || x->state[at].length < shortest)
        return 0;
    for (int i = 0; i < NEAREST && x->state[x->state[at].link].length >= longest; i++)
        at = x->state[at].link;
    int from = x->state[at].latest + 1, i = 0;
    for (; i < n; i++) {
        token[i] = from + i < x->n ? x->text[from + i] : token[from + i - x->n];
        if (token[i] < 0)
            break;
    }
    *n_equal = x->state[at].length;
    return i;
}

/* The state of the longest suffix of text[0, n) that occurs in x, and its length. */
static int32_t match(const struct suffixes *x, const int32_t *text, int n, int *length)
{
    int32_t at = 0;
    *length = 0;
    for (int i = 0; i < n; i++) {
        const struct edge *edge = text[i] >= 0 ? find_edge(x, at, text[i]) : NULL;
        while (edge == NULL && at > 0) {
            at = x->state[at].link;
            *length = x->state[at].length;
            edge = text[i] >= 0 ? find_edge(x, at, text[i]) : NULL;
        }
        at = edge != NULL ? edge->to : 0;
        *length += edge != NULL;
    }
    return at;
}

int suffixes_find(const struct suffixes *x, const struct suffixes *text, int shortest, int longest, int n,
                  int32_t *token, int *n_equal)
{
    int length, n_last = text->n < longest ? text->n : longest, i = 0;
    int32_t at = match(x, text->text + text->n - n_last, n_last, &length);
    *n_equal = 0;
    if (length == 0 || length < shortest)
        return 0;
    for (int from = x->state[at].latest + 1; i < n && from + i < x->n && x->text[from + i] >= 0; i++)
        token[i] = x->text[from + i];
    *n_equal = i > 0 ? length : 0;
    return i;
}
