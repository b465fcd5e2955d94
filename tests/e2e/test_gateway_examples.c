/* tests/e2e/test_gateway_examples.c - every example of docs/gateway.md, run by curl against the gateway in front of a
 * real server, on 1 and 2 ranks. A block "sh curl NAME" is a command; "json answer NAME" has members that its output
 * must have, "text answer NAME" has lines that its output must have in this order. */
#include "tests/support/cases.h"
#include "tests/support/examples.h"
#include "tests/support/serving.h"
#include "tests/support/web.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE        "docs/gateway.md"
#define OUTPUT_MOST ((size_t)1 << 20)

static struct serving server;
static struct web_gateway gate;

static char *read_page(void)
{
    char *text = calloc(1, OUTPUT_MOST);
    FILE *f = fopen(PAGE, "r");
    if (f == NULL || text == NULL || fread(text, 1, OUTPUT_MOST - 1, f) == 0) {
        perror(PAGE);
        exit(99);
    }
    (void)fclose(f);
    return text;
}

/* Returns the standard output of a shell command; the caller frees it. */
static char *run_command(const char *command)
{
    char line[4096];
    char *text = calloc(1, OUTPUT_MOST);
    (void)snprintf(line, sizeof line, "GATEWAY=http://%s; %s", gate.address, command);
    FILE *f = popen(line, "r"); /* NOLINT */
    if (f != NULL && text != NULL)
        (void)!fread(text, 1, OUTPUT_MOST - 1, f);
    if (f != NULL)
        (void)pclose(f);
    return text;
}

static void compare_json(const char *found, const char *wanted)
{
    char why[400] = "no JSON";
    json_t *a = json_loads(found, 0, NULL), *b = json_loads(wanted, 0, NULL);
    case_check(a != NULL && b != NULL && example_compare(a, b, why, sizeof why), "%s: %s", why, found);
    json_decref(a);
    json_decref(b);
}

static void compare_text(const char *found, char *wanted)
{
    const char *at = found;
    for (char *rest = wanted, *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *next = strstr(at, line);
        if (!case_check(next != NULL, "\"%s\" is missing after the lines before it in %s", line, found))
            return;
        at = next + strlen(line);
    }
}

/* Cuts out of the page the block that begins at the line `fence`; NULL: there is none. The caller frees it. */
static char *block(const char *page, const char *fence)
{
    const char *from = strstr(page, fence), *to = from != NULL ? strstr(from, "\n```") : NULL;
    if (to == NULL)
        return NULL;
    from = strchr(from, '\n') + 1;
    return strndup(from, (size_t)(to > from ? to - from : 0));
}

static void example(const char *page, const char *name)
{
    char fence[3][120];
    (void)snprintf(fence[0], sizeof fence[0], "```sh curl %s\n", name);
    (void)snprintf(fence[1], sizeof fence[1], "```json answer %s\n", name);
    (void)snprintf(fence[2], sizeof fence[2], "```text answer %s\n", name);
    char *command = block(page, fence[0]), *json = block(page, fence[1]), *text = block(page, fence[2]);
    case_begin("example %s on %d ranks", name, server.ranks);
    char *found = run_command(command);
    if (case_check(found != NULL && (json != NULL) != (text != NULL), "the example has no answer, or two")) {
        if (json != NULL)
            compare_json(found, json);
        else
            compare_text(found, text);
    }
    case_end();
    free(command);
    free(json);
    free(text);
    free(found);
}

static int examples(const char *page)
{
    static const char fence[] = "\n```sh curl ";
    int n = 0;
    for (const char *at = page; (at = strstr(at, fence)) != NULL; n++) {
        char name[80];
        at += strlen(fence);
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\n"), at);
        example(page, name);
    }
    return n;
}

int main(void)
{
    char *page = read_page();
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (!serving_start(&server, ranks, NULL, NULL)) {
            case_begin("serve on %d ranks", ranks);
            case_check(false, "it does not start");
            case_end();
            continue;
        }
        web_start(&gate, true, (const char *const[]){"--backend", server.rendezvous, NULL});
        int n = examples(page);
        case_begin("all %d examples were run, the gateway ends", n);
        case_check(n >= 12 && web_stop(&gate) == 0, "another status, or fewer than 12 examples");
        case_end();
        (void)serving_stop(&server);
    }
    free(page);
    return cases_done();
}
