/* coordinator/net/parcels.c - see parcels.h. */
#include "coordinator/net/parcels.h"

#include <stdlib.h>

struct parcel *parcels_add(struct parcels *p, unsigned char *body, size_t bytes)
{
    struct parcel *one = malloc(sizeof *one);
    if (one == NULL)
        return NULL;
    one->next = NULL;
    one->body = body;
    one->n_body = bytes;
    one->done = one->n_head = 0;
    if (p->last != NULL)
        p->last->next = one;
    else
        p->first = one;
    p->last = one;
    p->bytes += bytes;
    return one;
}

static void drop_first(struct parcels *p)
{
    struct parcel *one = p->first;
    p->first = one->next;
    if (p->first == NULL)
        p->last = NULL;
    p->bytes -= one->n_body;
    free(one->body);
    free(one);
}

void parcels_pass(struct parcels *p, size_t n)
{
    while (p->first != NULL) {
        struct parcel *one = p->first;
        size_t left = one->n_head + one->n_body - one->done, pass = n < left ? n : left;
        one->done += pass;
        n -= pass;
        if (pass < left)
            return;
        drop_first(p);
    }
}

int parcels_list(const struct parcels *p, struct iovec *piece, int most)
{
    int n = 0;
    for (struct parcel *one = p->first; one != NULL && n + 2 <= most; one = one->next) {
        size_t of_head = one->done < one->n_head ? one->done : one->n_head, of_body = one->done - of_head;
        if (of_head < one->n_head)
            piece[n++] = (struct iovec){one->head + of_head, one->n_head - of_head};
        if (of_body < one->n_body)
            piece[n++] = (struct iovec){one->body + of_body, one->n_body - of_body};
    }
    return n;
}

void parcels_free(struct parcels *p)
{
    while (p->first != NULL)
        drop_first(p);
}
