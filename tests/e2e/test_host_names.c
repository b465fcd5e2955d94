/* tests/e2e/test_host_names.c - lockstep-client and lockstep-gateway when the host of a server cannot be resolved, or
 * is an IPv6 address. */
#include "base/clock.h"
#include "base/err.h"
#include "client/connection.h"
#include "tests/support/cases.h"
#include "tests/support/client.h"
#include "tests/support/files.h"
#include "tests/support/front.h"
#include "tests/support/serving.h"

#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char preload[PATH_MAX + 20]; /* "LD_PRELOAD=.../no_names.so" */

static void find_preload(void)
{
    char path[PATH_MAX];
    const char *build = getenv("LOCKSTEP_BUILD");
    (void)snprintf(path, sizeof path, "%s/tests/no_names.so", build != NULL ? build : "build/cpu");
    char *full = realpath(path, NULL);
    (void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s", full != NULL ? full : path);
    free(full);
}

/* The client names the host and the reason, and ends. */
static void client_says(const char *host, const char *timeout, const char *reason)
{
    const char *const env[] = {preload, NULL};
    char endpoint[100], words[300];
    struct process p;
    (void)snprintf(endpoint, sizeof endpoint, "tcp://%s.invalid:5555", host);
    (void)snprintf(words, sizeof words, "%s: the host name \"%s.invalid\" cannot be resolved: %s; add it to DNS",
                   endpoint, host, reason);
    case_begin("lockstep-client: the host is %s", host);
    process_run(&p, &(struct process_setup){.program = CLIENT, .env = env},
                CLIENT_WORDS("health", "--endpoint", endpoint, "--connect-timeout", timeout));
    case_check(p.status == ERR_COMM && process_in_time(p.seconds, 2), "status %d in %.1f s", p.status, p.seconds);
    client_check_output(&p, "", words);
    case_end();
    process_free(&p);
}

static void start_gateway(struct web_gateway *g, bool ready, const char *const *more)
{
    (void)putenv(preload);
    web_start(g, ready, more);
    (void)unsetenv("LD_PRELOAD");
}

/* Waits until the gateway's log has the line. */
static void await_line(struct web_gateway *g, const char *line)
{
    double until = seconds_now() + process_patience(8);
    while (strstr(g->p.text[PROCESS_ERR], line) == NULL && !g->p.ended && seconds_now() < until)
        process_watch(&g->p, 0.02, (size_t)-1);
    case_check(strstr(g->p.text[PROCESS_ERR], line) != NULL, "no \"%s\" in: %s", line, g->p.text[PROCESS_ERR]);
}

/* Backends by endpoint and by file: one line each, and the gateway waits for them. */
static void gateway_says(void)
{
    char dir[256], line[600];
    struct web_gateway g;
    struct web_answer a;
    files_make_dir(dir);
    files_write_text(dir, "job.json", "{\"endpoint\": \"tcp://unknown.invalid:5555\"}");
    start_gateway(&g, false, CLIENT_WORDS("--backend", "tcp://unknown.invalid:5556", "--backend", dir));
    case_begin("lockstep-gateway: an unknown host of an endpoint, and of a file");
    await_line(&g, "backend tcp://unknown.invalid:5556: the host name \"unknown.invalid\" cannot be resolved: ");
    (void)snprintf(line, sizeof line,
                   "backend %s/job.json: the host name \"unknown.invalid\" cannot be resolved: ", dir);
    await_line(&g, line);
    web_ask(&g, "GET", "/health", "", "", &a);
    front_check(&a, 503, "");
    web_free(&a);
    process_watch(&g.p, RESOLVE_AGAIN + 0.5, (size_t)-1); /* the next attempt */
    case_check(process_count_lines(g.p.text[PROCESS_ERR]) == 3, "not one line each: %s", g.p.text[PROCESS_ERR]);
    case_check(web_stop(&g) == 0, "its status is not 0");
    case_end();
    files_remove_dir(dir);
}

static void gateway_ends(void)
{
    struct web_gateway g;
    case_begin("lockstep-gateway: a silent name server does not delay its end");
    start_gateway(&g, false, CLIENT_WORDS("--backend", "tcp://silent.invalid:5555"));
    double began = seconds_now();
    int status = web_stop(&g);
    double took = seconds_now() - began;
    case_check(status == 0 && process_in_time(took, 1), "status %d in %.1f s", status, took);
    case_end();
}

static void gateway_recovers(void)
{
    struct fake_server fake;
    struct web_gateway g;
    char endpoint[100];
    front_serve(&fake, "fake");
    (void)snprintf(endpoint, sizeof endpoint, "tcp://comes.invalid%s", strrchr(fake.endpoint, ':'));
    case_begin("lockstep-gateway: a host that is known later");
    start_gateway(&g, true, CLIENT_WORDS("--backend", endpoint));
    await_line(&g, "the host name \"comes.invalid\" cannot be resolved: ");
    await_line(&g, "is ready");
    case_check(web_stop(&g) == 0, "its status is not 0");
    case_end();
    front_end(&fake);
}

static bool has_ipv6(void)
{
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool bound = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0;
    if (fd >= 0)
        (void)close(fd);
    return bound;
}

static void ipv6(void)
{
    static const char name[] = "a server at [::1]";
    struct connection c = {0};
    struct serving s;
    if (!has_ipv6()) {
        case_skip(name, "there is no IPv6 here");
        return;
    }
    case_begin("%s", name);
    if (case_check(serving_start(&s, 1, "tcp://[::1]:*", NULL), "it does not start")) {
        case_check(strncmp(s.endpoint, "tcp://[::1]:", 12) == 0 && serving_connect(&s, &c), "no connection to %s",
                   s.endpoint);
        connection_close(&c);
        case_check(serving_stop(&s) == 0, "its status is not 0");
    }
    case_end();
}

int main(void)
{
    find_preload();
    client_says("unknown", "60", "Name or service not known");
    client_says("passing", "1", "Temporary failure in name resolution");
    client_says("silent", "0.5", "no name server has answered within 0.5 s");
    gateway_says();
    gateway_ends();
    gateway_recovers();
    ipv6();
    return cases_done();
}
