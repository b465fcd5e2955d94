/* tests/e2e/test_gateway_figures.c - lockstep-gateway in front of a real server: the figures of requests in its metrics
 * and its access log, and the resources that a departed client still holds in the server. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/serving.h"
#include "tests/support/web.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STREAM "{\"prompt\":\"Long ago\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true}"

static struct serving server;
static struct web_gateway gate;
static char dir[256];

/* Returns the sample of the gateway's metrics whose line begins so; NAN: there is none. */
static double figure(const char *line)
{
    struct web_answer a;
    double value = NAN;
    size_t n = strlen(line);
    web_ask(&gate, "GET", "/metrics", "", "", &a);
    for (const char *at = a.body; (at = strstr(at, line)) != NULL; at++)
        if ((at == a.body || at[-1] == '\n') && at[n] == ' ')
            value = strtod(at + n, NULL);
    web_free(&a);
    return value;
}

static double seconds_of(const char *what)
{
    char line[100];
    (void)snprintf(line, sizeof line, "lockstep_gateway_%s_seconds_sum", what);
    return figure(line);
}

static bool near(double a, double b, double slack)
{
    return fabs(a - b) <= slack; /* false for NaN */
}

/* Makes the requests whose figures the other cases check: two that are answered, two that are refused. */
static void requests(void)
{
    static const struct {
        const char *body;
        int status;
    } asked[] = {
        {"{\"prompt\":\"Once upon a time\",\"max_tokens\":20,\"temperature\":0}", 200},
        {"{\"prompt\":\"Once upon a time\",\"max_tokens\":20,\"temperature\":0,\"stream\":true}", 200},
        {"{\"prompt\":\"Once\",\"max_tokens\":\"many\"}", 400},
        {"{\"prompt\":", 400},
    };
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct web_answer a;
        case_begin("request %zu", i);
        web_ask(&gate, "POST", "/v1/completions", "X-Request-Id: mine\r\n", asked[i].body, &a);
        case_check(a.status == asked[i].status, "%d %s", a.status, a.body);
        web_free(&a);
        case_end();
    }
}

static void split(void)
{
    case_begin("the time of requests is split into the backend's queue and compute and the gateway's overhead");
    double total = seconds_of("request"), backend = seconds_of("backend"), overhead = seconds_of("overhead");
    double parts = seconds_of("queue") + seconds_of("compute"), first = seconds_of("first_token");
    case_check(figure("lockstep_gateway_request_seconds_count") == 2, "%g are counted",
               figure("lockstep_gateway_request_seconds_count"));
    case_check(near(total, backend + overhead, 1e-6), "%g s are not %g and %g", total, backend, overhead);
    case_check(parts > 0 && parts <= backend + 1e-6, "%g s of %g are queue and compute", parts, backend);
    case_check(first > 0 && first <= total, "%g s of %g up to the first tokens", first, total);
    case_end();
    case_begin("the same times under SageMaker's names");
    case_check(figure("Invocations") == 4 && figure("Invocation4XXErrors") == 2 && figure("Invocation5XXErrors") == 0,
               "%g, %g, %g", figure("Invocations"), figure("Invocation4XXErrors"), figure("Invocation5XXErrors"));
    case_check(near(figure("ModelLatency_sum"), 1e6 * backend, 1) && figure("ModelLatency_count") == 2, "%g us",
               figure("ModelLatency_sum"));
    case_check(near(figure("OverheadLatency_sum"), 1e6 * overhead, 1) && figure("OverheadLatency_count") == 2, "%g us",
               figure("OverheadLatency_sum"));
    case_end();
}

static void check_line(const char *line, int i)
{
    double total = -1, gateway = -1, compute = -1, queue = -1, first = -1;
    int prompt = -1, completion = -1, status = 0;
    const char *id = "", *model = "";
    json_t *o = json_loads(line, 0, NULL);
    (void)json_unpack(o, "{s:s, s:F, s:F, s:F, s:F, s:F, s:i, s:i, s:i, s:s}", "request_id", &id, "total_ms", &total,
                      "gateway_ms", &gateway, "compute_ms", &compute, "queue_ms", &queue, "first_token_ms", &first,
                      "prompt_tokens", &prompt, "completion_tokens", &completion, "status", &status, "model", &model);
    case_check(strcmp(id, "mine") == 0 && status == 200 && prompt == 5 && completion == 20 &&
                   strcmp(model, "lockstep-stories") == 0,
               "line %d: %s", i, line);
    case_check(gateway >= 0 && compute > 0 && queue >= 0 && first > 0 && first <= total &&
                   gateway + compute + queue <= total + 0.01,
               "line %d: the times do not add up: %s", i, line);
    json_decref(o);
}

/* After the gateway's end every line has been written. */
static void log_lines(void)
{
    size_t bytes = 0;
    char *text = files_read(dir, "log", &bytes), *rest = text, *line;
    int n = 0, n_left = 0;
    case_begin("the access log has the same parts");
    while ((line = strsep(&rest, "\n")) != NULL) {
        bool whole = strstr(line, "\"completion_tokens\":20,") != NULL;
        n_left += strstr(line, "\"left\":true") != NULL;
        if (whole)
            check_line(line, n++);
    }
    case_check(n == 2 && n_left > 0, "%d lines of answers, %d of clients that left, in %s", n, n_left, text);
    free(text);
    case_end();
}

static double within(const char *steps)
{
    char value[16];
    (void)snprintf(value, sizeof value, "%s", steps);
    return serving_metric_of(&server, "cancellation_steps_bucket", "le", value);
}

/* The server counts steps between its reports; another stream makes it report every step. */
static void leaves(void)
{
    enum { ROUNDS = 12 };
    char all[8192] = "";
    case_begin("requests of clients that leave are out of the engine within 2 steps, on %d ranks", server.ranks);
    int other = web_connect(&gate);
    web_post(other, "/v1/completions", "", STREAM);
    case_check(web_await(other, "data: ", all, sizeof all), "%s", all);
    for (int i = 0; i < ROUNDS; i++) {
        int fd = web_connect(&gate);
        all[0] = '\0';
        web_post(fd, "/v1/completions", "", STREAM);
        case_check(web_await(fd, "data: ", all, sizeof all), "%s", all);
        (void)close(fd);
    }
    case_check(serving_await(&server, "num_requests_running", 1, WEB_SECONDS), "requests of clients that left run on");
    case_check(within("+Inf") == ROUNDS, "%g of %d cancellations are counted", within("+Inf"), ROUNDS);
    case_check(within("2") >= ROUNDS - 1, "%g of %d took up to 2 steps", within("2"), ROUNDS);
    (void)close(other);
    case_check(serving_await(&server, "kv_blocks_used", 0, WEB_SECONDS), "blocks are still held");
    case_end();
}

/* Dashboards show these of every process. */
static void process_figures(void)
{
    case_begin("figures of the gateway's process");
    double start = figure("process_start_time_seconds"), resident = figure("process_resident_memory_bytes");
    case_check(start <= (double)time(NULL) && start > (double)time(NULL) - 3600, "started at %g", start);
    case_check(resident > 1e6 && resident < 1e10, "%g resident bytes", resident);
    case_check(figure("process_cpu_seconds_total") >= 0 && figure("process_max_fds") >= 64, "no times or files");
    case_check(figure("lockstep_gateway_access_log_lost_lines_total") == 0, "lost lines");
    case_check(figure("lockstep_gateway_build_info{version=\"" LOCKSTEP_VERSION "\"}") == 1, "no version");
    case_end();
}

int main(void)
{
    char log[300];
    files_make_dir(dir);
    (void)snprintf(log, sizeof log, "%s/log", dir);
    case_begin("serve");
    bool up = serving_start(&server, 2, NULL, NULL);
    case_check(up, "it does not start");
    case_end();
    if (up) {
        web_start(&gate, true, (const char *const[]){"--backend", server.rendezvous, "--access-log", log, NULL});
        requests();
        process_figures();
        split();
        leaves();
        case_begin("the gateway ends with status 0");
        case_check(web_stop(&gate) == 0, "it did not");
        case_end();
        log_lines();
        (void)serving_stop(&server);
    }
    files_remove_dir(dir);
    return cases_done();
}
