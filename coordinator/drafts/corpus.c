/* coordinator/drafts/corpus.c - see corpus.h. Answers go into one part; when it is full the other one is emptied and
 * takes its place. */
#include "coordinator/drafts/corpus.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DRAFTS 64 /* tokens that corpus_find tells at most */

struct corpus {
    struct suffixes *part[2];
    int now; /* the one that grows */
};

int corpus_open(struct corpus **out, struct err *e)
{
    struct corpus *c = *out = err_calloc(e, 1, sizeof *c, "answers to draft from");
    if (c != NULL && suffixes_open(&c->part[0], CORPUS_PART, e) == 0 && suffixes_open(&c->part[1], CORPUS_PART, e) == 0)
        return 0;
    corpus_close(out);
    return -1;
}

void corpus_close(struct corpus **c)
{
    if (*c == NULL)
        return;
    suffixes_close(&(*c)->part[0]);
    suffixes_close(&(*c)->part[1]);
    free(*c);
    *c = NULL;
}

void corpus_add(struct corpus *c, const int32_t *token, size_t n)
{
    size_t most = CORPUS_PART - 1, skipped = n > most ? n - most : 0;
    if (suffixes_room(c->part[c->now]) < (int)(n - skipped) + 1) {
        c->now = 1 - c->now;
        suffixes_clear(c->part[c->now]);
    }
    for (size_t i = skipped; i < n; i++)
        suffixes_add(c->part[c->now], token[i]);
    suffixes_add(c->part[c->now], -1);
}

int corpus_find(const struct corpus *c, const struct suffixes *text, int shortest, int longest, int n, int32_t *token,
                int *n_equal)
{
    int32_t older[MOST_DRAFTS];
    int n_older_equal, n_now = suffixes_find(c->part[c->now], text, shortest, longest, n, token, n_equal);
    n = n < MOST_DRAFTS ? n : MOST_DRAFTS;
    int n_older = suffixes_find(c->part[1 - c->now], text, shortest, longest, n, older, &n_older_equal);
    if (n_older == 0 || (n_now > 0 && *n_equal >= n_older_equal))
        return n_now;
    memcpy(token, older, (size_t)n_older * sizeof *token);
    *n_equal = n_older_equal;
    return n_older;
}
