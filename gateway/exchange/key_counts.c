/* gateway/exchange/key_counts.c - see key_counts.h. */
#include "gateway/exchange/key_counts.h"

#include <stdlib.h>
#include <string.h>

/* NULL: out of memory, or there are too many names. */
static struct key_count *find_count(struct key_counts *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->one[i].name, name) == 0)
            return &c->one[i];
    struct key_count *more = c->n < MAX_KEYS ? realloc(c->one, (c->n + 1) * sizeof *more) : NULL;
    if (more == NULL)
        return NULL;
    c->one = more;
    c->one[c->n] = (struct key_count){0};
    memcpy(c->one[c->n].name, name, strlen(name) + 1);
    return &c->one[c->n++];
}

void key_counts_take(struct key_counts *c, const struct tally *t)
{
    struct key_count *k = t->key[0] != '\0' ? find_count(c, t->key) : NULL;
    if (k == NULL)
        return;
    k->requests++;
    k->over_limit += t->over_limit;
    k->prompt_tokens += (uint64_t)t->prompt_tokens;
    k->completion_tokens += (uint64_t)t->completion_tokens;
}

void key_counts_write(const struct key_counts *c, struct bytes *to)
{
    if (c->n == 0)
        return;
    bytes_text(to, "# HELP lockstep_gateway_key_requests_total Requests by the name of their API key.\n"
                   "# TYPE lockstep_gateway_key_requests_total counter\n");
    for (const struct key_count *k = c->one; k < c->one + c->n; k++)
        bytes_format(to, "lockstep_gateway_key_requests_total{key=\"%s\"} %llu\n", k->name,
                     (unsigned long long)k->requests);
    bytes_text(to, "# HELP lockstep_gateway_key_over_limit_total Requests of these beyond --max-requests-per-party.\n"
                   "# TYPE lockstep_gateway_key_over_limit_total counter\n");
    for (const struct key_count *k = c->one; k < c->one + c->n; k++)
        bytes_format(to, "lockstep_gateway_key_over_limit_total{key=\"%s\"} %llu\n", k->name,
                     (unsigned long long)k->over_limit);
    bytes_text(to, "# HELP lockstep_gateway_key_tokens_total Tokens of requests by the name of their API key.\n"
                   "# TYPE lockstep_gateway_key_tokens_total counter\n");
    for (const struct key_count *k = c->one; k < c->one + c->n; k++)
        bytes_format(to,
                     "lockstep_gateway_key_tokens_total{key=\"%s\",kind=\"prompt\"} %llu\n"
                     "lockstep_gateway_key_tokens_total{key=\"%s\",kind=\"completion\"} %llu\n",
                     k->name, (unsigned long long)k->prompt_tokens, k->name, (unsigned long long)k->completion_tokens);
}

void key_counts_free(struct key_counts *c)
{
    free(c->one);
    *c = (struct key_counts){0};
}
