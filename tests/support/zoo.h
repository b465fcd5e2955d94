/* tests/support/zoo.h - a folder for `lockstep serve --models-dir`: forty tiny models of all families, broken and too
 * large ones among them; requests for them and the right answers; operations on them. */
#ifndef TESTS_SUPPORT_ZOO_H
#define TESTS_SUPPORT_ZOO_H

#include "tests/support/serving.h"
#include "tests/support/talk.h"

#define ZOO_GOOD   37             /* models that can be served */
#define ZOO_BROKEN ZOO_GOOD       /* not JSON */
#define ZOO_SHORT  (ZOO_GOOD + 1) /* its weights end too early */
#define ZOO_LARGE  (ZOO_GOOD + 2) /* more than ZOO_MEMORY */
#define ZOO_ALL    (ZOO_GOOD + 3)
#define ZOO_TOKENS 32 /* in every answer */
#define ZOO_MEMORY "12M"

struct zoo_model {
    char name[40];
    int32_t *prompt, *token; /* [ZOO_TOKENS] expected */
    int n_prompt;
    bool there; /* the fixture exists in this tree */
};

struct zoo {
    char dir[256];
    struct zoo_model model[ZOO_ALL];
    unsigned random;
};

extern struct zoo zoo;

/* Dies on failure. */
void zoo_open(void);
void zoo_close(void);

/* Chooses a model by Zipf's law, some that cannot be loaded among the frequent ones. */
int zoo_choose(void);

/* Sends request `number` for model i over a socket; tells whether a reply to it is right. The request_id is
 * "number.i". */
void zoo_ask(struct talk *t, int number, int i);
bool zoo_judge(const json_t *reply, int i);

/* Tells whether the answer to a request for model i, with the prompt of `expected`, is the expected one. */
bool zoo_answers_as(const struct serving *s, int i, const struct zoo_model *expected);

/* Returns a number of model i in the answer to `models`, NAN if there is none; tells whether this is its state. */
double zoo_number(const struct serving *s, int i, const char *member);
bool zoo_is(const struct serving *s, int i, const char *state);

/* Does an operation on model i, with further members (",\"wait\":false"); a short generation. Returns 200 or the
 * error's code. */
int zoo_operate(const struct serving *s, const char *op, int i, const char *more);
int zoo_story(const struct serving *s, int i, const char *more);

/* Makes the ranks' environment: on `rank` reads of weights fail after `after` bytes; elsewhere each takes `nap`
 * seconds. */
const char *const *zoo_slow_reads(const char *rank, size_t after, const char *nap);

#endif
