/* tests/support/client.c - see client.h. */
#include "tests/support/client.h"
#include "tests/support/cases.h"

#include <string.h>

#define MAX_WORDS 60

void client_start(struct process *p, const struct fake_server *s, const struct process_setup *setup,
                  const char *const *words)
{
    const char *argument[MAX_WORDS];
    int n = 0;
    struct process_setup mine = setup != NULL ? *setup : (struct process_setup){0};
    for (; words[n] != NULL && n < MAX_WORDS - 1; n++)
        argument[n] = strcmp(words[n], "E") == 0 ? s->endpoint : words[n];
    argument[n] = NULL;
    mine.program = CLIENT;
    process_start(p, &mine, argument);
}

const json_t *client_last_request(const struct fake_server *s)
{
    const json_t *last = NULL;
    for (int i = 0; i < s->n_received; i++)
        if (json_object_get(s->received[i], "op") == NULL ||
            strcmp(json_string_value(json_object_get(s->received[i], "op")), "cancel") != 0)
            last = s->received[i];
    return last;
}

void client_check_output(const struct process *p, const char *out, const char *words)
{
    case_check(out == NULL || strcmp(p->text[PROCESS_OUT], out) == 0, "standard output: %s", p->text[PROCESS_OUT]);
    case_check(words != NULL ? strstr(p->text[PROCESS_ERR], words) != NULL : p->bytes[PROCESS_ERR] == 0,
               "standard error: %s", p->text[PROCESS_ERR]);
    case_check(process_count_lines(p->text[PROCESS_ERR]) <= 1, "more than one line: %s", p->text[PROCESS_ERR]);
}
