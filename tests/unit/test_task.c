/* tests/unit/test_task.c - coordinator/tasks/task.c: the largest possible size of a reply, calculated before anything
 * is computed; its parts, its edge cases, and the largest numbers that a message can ask for; the context's room. */
#include "coordinator/tasks/task.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#define TOKEN   16 /* bytes: as in docs/serve.md */
#define LOGPROB 96
#define LONGEST (INT32_MAX - 1)

struct ask {
    int n_prompts, n_ids, n, best_of, max_tokens;
    int logprobs, prompt_logprobs; /* -1: not wanted */
    bool stream, echo;
    const char *text; /* of each prompt; NULL: prompts came as ids */
    int64_t bytes;    /* expected */
    const char *field;
};

static const struct ask asks[] = {
    {1, 10, 1, 0, 100, -1, -1, false, false, NULL, 100 * TOKEN, "max_tokens"},
    {3, 10, 4, 0, 100, -1, -1, false, false, NULL, 3 * 4 * 100 * TOKEN, "max_tokens"},
    {1, 10, 2, 50, 100, -1, -1, false, false, NULL, 2 * 100 * TOKEN,
     "max_tokens"}, /* candidates are not part of the reply */
    {2, 10, 3, 0, 50, 0, -1, false, false, NULL, 2 * 3 * 50 * (TOKEN + LOGPROB), "logprobs"},
    {2, 10, 3, 0, 50, 20, -1, false, false, NULL, 2 * 3 * 50 * (TOKEN + 21 * LOGPROB), "logprobs"},
    {2, 30, 3, 0, 1, -1, 20, false, false, NULL, 2 * 3 * (30 * 21 * LOGPROB + TOKEN), "prompt_logprobs"},
    {2, 30, 3, 0, 9, -1, 0, true, false, NULL, 2 * 3 * 30 * LOGPROB, "prompt_logprobs"}, /* in a stream's last event */
    {2, 30, 3, 0, 9, 20, 20, true, false, NULL, 2 * 3 * 30 * 21 * LOGPROB, "prompt_logprobs"},
    {2, 30, 3, 0, 1, -1, -1, false, true, NULL, 2 * 3 * (30 * TOKEN + TOKEN), "echo"},
    {2, 3, 5, 0, 1, -1, -1, true, true, "a\"\\\n\xc3\xa9 and more", 2 * 5 * (1 + 2 + 2 + 6 + 2 + 9), "echo"},
    {2, 30, 3, 0, 1, -1, -1, false, false, NULL, 2 * 3 * (30 * TOKEN + TOKEN), "return_token_ids"},
    {2, 30, 3, 0, 9, -1, -1, true, false, NULL, 2 * 3 * 30 * TOKEN, "return_token_ids"}, /* as the scores */
    {1, 1000, 128, 0, 1 << 24, 20, -1, false, false, NULL, (int64_t)128 * (1 << 24) * (TOKEN + 21 * LOGPROB),
     "logprobs"},
    /* The most sequences of the longest texts, beyond any possible message: no sum overflows. */
    {4096, 1000, 128, 0, LONGEST - 1000, 20, 20, false, true, NULL,
     (int64_t)4096 * 128 * ((int64_t)(LONGEST - 1000) * (TOKEN + 21 * LOGPROB) + 1000 * (21 * LOGPROB + TOKEN)),
     "logprobs"},
};

static struct task *make_task(const struct ask *a, struct protocol_prompt *prompts)
{
    struct task *task = task_open(1, NULL, false, 0);
    struct protocol_generate *g = &task->message.generate;
    g->rules = (struct request_rules){.max_tokens = a->max_tokens,
                                      .sampling = {.repetition_penalty = 1,
                                                   .n_top = a->logprobs > 0 ? a->logprobs : 0,
                                                   .n_prompt_top = a->prompt_logprobs > 0 ? a->prompt_logprobs : 0},
                                      .want_logprobs = a->logprobs >= 0,
                                      .want_prompt_logprobs = a->prompt_logprobs >= 0};
    (void)snprintf(g->limit_field, sizeof g->limit_field, "%s", "max_tokens");
    g->search = (struct search){.n = a->n, .best_of = a->best_of, .num_beams = 1};
    g->stream = a->stream;
    g->echo = a->echo;
    g->return_ids = strcmp(a->field, "return_token_ids") == 0;
    g->prompt = prompts;
    g->n_prompts = task->n_ids = a->n_prompts;
    task->ids = calloc((size_t)a->n_prompts, sizeof *task->ids);
    for (int i = 0; i < a->n_prompts; i++) {
        size_t n = (size_t)a->n_ids;
        task->ids[i] = (struct token_list){calloc(n, sizeof(int32_t)), n, n};
        prompts[i].text = (char *)a->text;
        prompts[i].bytes = a->text != NULL ? strlen(a->text) : 0;
    }
    return task;
}

/* At the limit a reply passes, if there is memory for it; a byte below it is refused, with the numbers. */
static void bounds(void **state)
{
    (void)state;
    static struct protocol_prompt prompts[4096];
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        const struct ask *a = &asks[i];
        char bytes[64];
        struct task *task = make_task(a, prompts);
        assert_int_equal(task_prepare(task, LONGEST, a->bytes - 1, 5), -1);
        (void)snprintf(bytes, sizeof bytes, "may take %lld bytes", (long long)a->bytes);
        if (strstr(task->error.message, bytes) == NULL || strcmp(task->error.field, a->field) != 0)
            fail_msg("%zu: %s: %s, expected %s: %s", i, task->error.field, task->error.message, a->field, bytes);
        assert_int_equal(task->error.code, PROTOCOL_TOO_LARGE);
        assert_int_equal(task->n_prompts, 0);
        task_close(task);
        if (a->n_prompts * a->n > 128)
            continue;
        task = make_task(a, prompts);
        assert_int_equal(task_prepare(task, LONGEST, a->bytes, 5), 0);
        assert_int_equal(task->n_prompts, a->n_prompts);
        task_close(task);
    }
}

/* The bytes held until the reply is written, including candidates that are not in it; never negative. */
static void holds(void **state)
{
    (void)state;
    static struct protocol_prompt prompts[4096];
    const struct ask few = {1, 10, 2, 50, 100, 20, -1, false, false, NULL, 0, ""};
    struct task *task = make_task(&few, prompts);
    assert_int_equal(task_prepare(task, LONGEST, INT64_MAX, 5), 0);
    assert_int_equal(task->result_bytes, 50 * 100 * (TOKEN + sizeof(struct sampled)));
    task_close(task);
    const struct ask *most = &asks[sizeof asks / sizeof asks[0] - 1];
    task = make_task(most, prompts);
    assert_int_equal(task_prepare(task, LONGEST, 1, 5), -1);
    assert_true(task->result_bytes > (size_t)most->max_tokens * 4096 * 128 * TOKEN &&
                task->result_bytes < SIZE_MAX / 4);
    task_close(task);
}

/* The client's own name for max_tokens is in both errors about it. */
static void names_the_limit(void **state)
{
    (void)state;
    static const char name[] = "parameters.max_new_tokens";
    static struct protocol_prompt prompts[1];
    for (int i = 0; i < 2; i++) {
        struct task *task = make_task(&asks[0], prompts);
        (void)snprintf(task->message.generate.limit_field, sizeof task->message.generate.limit_field, "%s", name);
        assert_int_equal(task_prepare(task, i == 0 ? 50 : LONGEST, 100, 5), -1);
        assert_int_equal(task->error.code, PROTOCOL_TOO_LARGE);
        assert_string_equal(task->error.field, name);
        task_close(task);
    }
}

/* Without room for the prompt or for max_tokens the message has the numbers, and the words that clients search for. */
static void lacks_room(void **state)
{
    (void)state;
    static struct protocol_prompt prompts[1];
    static const struct {
        int most;
        const char *field, *message;
    } cases[] = {{30, "max_tokens",
                  "10 prompt tokens + 21 = 31, expected at most 30. This model's maximum context length is 30 tokens, "
                  "prompt and output together"},
                 {10, "prompt",
                  "10 tokens, expected fewer than 10. This model's maximum context length is 10 tokens, prompt and "
                  "output together"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ask a = {1, 10, 1, 0, 21, -1, -1, false, false, NULL, 0, ""};
        struct task *task = make_task(&a, prompts);
        assert_int_equal(task_prepare(task, cases[i].most, INT64_MAX, 5), -1);
        assert_int_equal(task->error.code, PROTOCOL_TOO_LARGE);
        assert_string_equal(task->error.field, cases[i].field);
        assert_string_equal(task->error.message, cases[i].message);
        task_close(task);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds),
        cmocka_unit_test(holds),
        cmocka_unit_test(names_the_limit),
        cmocka_unit_test(lacks_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
