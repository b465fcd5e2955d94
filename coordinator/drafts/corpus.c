/* coordinator/drafts/corpus.c - see corpus.h. Answers go into one part; when the next one does not fit, the other part
 * is emptied and takes its place. */
#include "coordinator/drafts/corpus.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DRAFTS 64 /* most tokens that corpus_find returns */

struct corpus {
    struct suffixes *part[2];
    int now;            /* the one that grows */
    int32_t *wait;      /* [CORPUS_PART] answers to be added: for each its number of tokens, then the tokens */
    int n_wait, n_left; /* its entries; tokens of the first answer that are not added yet */
};

int corpus_open(struct corpus **out, struct err *e)
{
    struct corpus *c = *out = err_calloc(e, 1, sizeof *c, "answers to draft from");
    if (c != NULL)
        c->wait = err_calloc(e, CORPUS_PART, sizeof *c->wait, "answers to draft from");
    if (c != NULL && c->wait != NULL && suffixes_open(&c->part[0], CORPUS_PART, e) == 0 &&
        suffixes_open(&c->part[1], CORPUS_PART, e) == 0)
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
    free((*c)->wait);
    free(*c);
    *c = NULL;
}

void corpus_add(struct corpus *c, const int32_t *token, size_t n)
{
    size_t room = (size_t)(CORPUS_PART - c->n_wait), kept = n < room ? n : room - 1;
    if (room < 2 || n == 0)
        return;
    c->wait[c->n_wait] = (int32_t)kept;
    memcpy(c->wait + c->n_wait + 1, token + (n - kept), kept * sizeof *token);
    c->n_wait += 1 + (int)kept;
}

/* Chooses the part for the next answer, of this many tokens and a border. */
static void begin_answer(struct corpus *c, int n)
{
    if (suffixes_room(c->part[c->now]) < n + 1) {
        c->now = 1 - c->now;
        suffixes_clear(c->part[c->now]);
    }
}

void corpus_learn(struct corpus *c, int n)
{
    int at = 0;
    for (; n > 0 && at < c->n_wait; n--) {
        if (c->n_left == 0) {
            c->n_left = c->wait[at++];
            begin_answer(c, c->n_left);
        }
        suffixes_add(c->part[c->now], c->wait[at++]);
        if (--c->n_left == 0)
            suffixes_add(c->part[c->now], -1);
    }
    c->n_wait -= at;
    memmove(c->wait, c->wait + at, (size_t)c->n_wait * sizeof *c->wait);
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
