/* tests/soak/test_models_crowd.c - `lockstep serve --models-dir` under a crowd: 200 clients ask for forty tiny models
 * of all families by Zipf's law, four of which are loaded at once; some are broken, one is too large. Every request is
 * answered once and correctly. Then one client alone, whose hits equal those of a simulation of the policy; then rounds
 * of loading and unloading, after which memory has its former size. SOAK_SECONDS in the environment: duration of the
 * crowd, 120 by default. MODELS_ROUNDS: 1000. MODELS_RANKS: 2. */
#include "base/clock.h"
#include "tests/support/cases.h"
#include "tests/support/zoo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define CLIENTS     200
#define MOST_MODELS 4
#define FEW         (2 * CLIENTS) /* requests of the crowd, even if they take longer: some find their model loaded */
#define ALONE       300           /* requests of the single client */
#define PATIENCE    180.0         /* seconds without any answer: then the requests are lost */
#define HOST_SLACK  ((double)(8 << 20))

static struct serving server;

static double setting(const char *name, double usual)
{
    const char *text = getenv(name);
    return text != NULL ? atof(text) : usual;
}

/* ---- the crowd ---- */

static struct {
    void *context;
    struct talk client[CLIENTS];
    zmq_pollitem_t item[CLIENTS];
    int asked[CLIENTS];             /* number of the open request; -1: none */
    int n_sent, n_heard, n_strange; /* strange: wrong, or unexpected */
} crowd;

static void gather(void)
{
    const int none = 0;
    crowd.context = zmq_ctx_new();
    for (int c = 0; c < CLIENTS; c++) {
        void *socket = zmq_socket(crowd.context, ZMQ_DEALER);
        if (socket == NULL || zmq_setsockopt(socket, ZMQ_LINGER, &none, sizeof none) != 0 ||
            zmq_connect(socket, server.endpoint) != 0)
            exit(99);
        crowd.client[c] = (struct talk){crowd.context, socket};
        crowd.item[c] = (zmq_pollitem_t){.socket = socket, .events = ZMQ_POLLIN};
        crowd.asked[c] = -1;
    }
}

static void disperse(void)
{
    for (int c = 0; c < CLIENTS; c++)
        (void)zmq_close(crowd.client[c].socket);
    (void)zmq_ctx_term(crowd.context);
}

static void hear(int c)
{
    json_t *reply = talk_hear(&crowd.client[c], 0);
    int number = -1, i = 0;
    if (reply == NULL)
        return;
    crowd.n_heard++;
    if (sscanf(talk_text(reply, "request_id"), "%d.%d", &number, &i) != 2 || number != crowd.asked[c] || i < 0 ||
        i >= ZOO_ALL || !zoo_judge(reply, i)) {
        char *text = json_dumps(reply, JSON_COMPACT);
        if (crowd.n_strange++ < 3)
            printf("# %.400s\n", text);
        free(text);
    }
    crowd.asked[c] = -1;
    json_decref(reply);
}

/* Each client has one request open until the time is over and a few were sent; then all are answered. */
static void ask_around(double seconds)
{
    double started = seconds_now(), heard = started;
    bool asking = true;
    while ((asking || crowd.n_heard < crowd.n_sent) && seconds_now() - heard < PATIENCE) {
        asking = asking && (seconds_now() - started < seconds || crowd.n_sent < FEW);
        for (int c = 0; c < CLIENTS && asking; c++)
            if (crowd.asked[c] < 0) {
                crowd.asked[c] = crowd.n_sent;
                zoo_ask(&crowd.client[c], crowd.n_sent++, zoo_choose());
            }
        if (zmq_poll(crowd.item, CLIENTS, 100) > 0)
            heard = seconds_now();
        for (int c = 0; c < CLIENTS; c++)
            if ((crowd.item[c].revents & ZMQ_POLLIN) != 0)
                hear(c);
    }
}

static void check_crowd(double seconds)
{
    case_begin("%d clients for %g s ask for %d models, %d loaded at once", CLIENTS, seconds, ZOO_ALL, MOST_MODELS);
    gather();
    ask_around(seconds);
    disperse();
    double asked = serving_metric(&server, "Invocations"), hits = serving_metric(&server, "ModelCacheHit");
    double loads = serving_metric(&server, "model_loads_total"), gone = serving_metric(&server, "model_unloads_total");
    printf("# %d requests, %g found their model loaded, %g loads, %g unloads\n", crowd.n_heard, hits, loads, gone);
    case_check(crowd.n_heard == crowd.n_sent, "%d of %d requests were answered", crowd.n_heard, crowd.n_sent);
    case_check(crowd.n_strange == 0, "%d answers are wrong", crowd.n_strange);
    case_check(asked == crowd.n_sent && hits > 0 && hits < asked, "%g counted, %g hits", asked, hits);
    case_check(loads - gone == serving_metric(&server, "LoadedModelCount"), "%g loads, %g unloads", loads, gone);
    case_check(serving_metric(&server, "model_running") == 0 && serving_metric(&server, "model_waiting") == 0,
               "a request still runs or waits");
    case_end();
}

/* ---- the simulated policy ---- */

struct shelf_of_models {
    int model[MOST_MODELS], n; /* [n] the least recently used first */
    double used, memory, bytes[ZOO_ALL];
};

/* Returns whether the model was loaded; it becomes the most recently used one. */
static bool use(struct shelf_of_models *s, int i)
{
    int at = 0;
    while (at < s->n && s->model[at] != i)
        at++;
    bool hit = at < s->n;
    for (int gone = hit ? at : 0; hit || s->n == MOST_MODELS || (s->n > 0 && s->used + s->bytes[i] > s->memory);) {
        s->used -= s->bytes[s->model[gone]];
        s->n--;
        memmove(s->model + gone, s->model + gone + 1, (size_t)(s->n - gone) * sizeof *s->model);
        if (hit)
            break;
    }
    s->model[s->n++] = i;
    s->used += s->bytes[i];
    return hit;
}

static void unload_all(void)
{
    for (int i = 0; i < ZOO_GOOD; i++)
        if (zoo.model[i].there)
            (void)zoo_operate(&server, "unload", i, "");
}

/* Learns the sizes as the server counts them. */
static void learn_sizes(struct shelf_of_models *s)
{
    s->memory = serving_metric(&server, "models_memory_bytes");
    for (int i = 0; i < ZOO_GOOD; i++)
        if (zoo.model[i].there) {
            (void)zoo_operate(&server, "load", i, "");
            s->bytes[i] = zoo_number(&server, i, "bytes");
            case_check(s->bytes[i] > 0, "%s has no size", zoo.model[i].name);
        }
    unload_all();
}

static void check_policy(void)
{
    struct shelf_of_models foretold = {0};
    struct talk t;
    int hits = 0, n_wrong = 0;
    case_begin("hits of %d requests one after the other are those of a simulation", ALONE);
    learn_sizes(&foretold);
    double before = serving_metric(&server, "ModelCacheHit");
    talk_open(&t, ZMQ_DEALER, server.endpoint, NULL, NULL);
    for (int k = 0; k < ALONE; k++) {
        int i = zoo_choose();
        if (i == ZOO_SHORT) /* it may or may not take room, depending on when it failed last */
            continue;
        zoo_ask(&t, k, i);
        json_t *reply = talk_hear(&t, PATIENCE);
        n_wrong += !zoo_judge(reply, i);
        json_decref(reply);
        hits += i < ZOO_GOOD && use(&foretold, i);
    }
    talk_close(&t);
    double counted = serving_metric(&server, "ModelCacheHit") - before;
    printf("# %d requests: %d hits predicted, %g counted\n", ALONE, hits, counted);
    case_check(n_wrong == 0, "%d answers are wrong", n_wrong);
    case_check(counted == hits && hits > ALONE / 10, "%g hits, %d predicted", counted, hits);
    case_end();
}

/* ---- memory ---- */

/* Returns the bytes in use that the driver reports for this host's devices, as a percentage of one; 0 without a
 * device. */
static double device_use(void)
{
    double percent = serving_metric(&server, "GPUMemoryUtilization");
    return isnan(percent) ? 0 : percent;
}

/* Every model was loaded before, so libraries have allocated what they keep on the device. */
static void check_rounds(int n)
{
    double before = 0, after, device = device_use();
    int n_strange = 0;
    case_begin("%d rounds of load and unload of mixed models end with the memory that they began with", n);
    for (int k = 0; k < n; k++) {
        int i = k % ZOO_GOOD;
        i = zoo.model[i].there ? i : 0;
        int loaded = zoo_operate(&server, "load", i, ""), gone = zoo_operate(&server, "unload", i, "");
        n_strange += (loaded != 200 && loaded != 409) || gone != 200;
        if (k == n / 4) /* libraries and allocators have filled their caches */
            before = serving_resident(&server, server.ranks - 1);
    }
    after = serving_resident(&server, server.ranks - 1);
    unload_all();
    printf("# %.2f MB resident on the last rank after %d rounds, %.2f after %d\n", before / 1e6, n / 4, after / 1e6, n);
    printf("# %.10f %% of the devices' memory in use before the rounds, %.10f after\n", device, device_use());
    case_check(n_strange == 0, "%d unexpected answers", n_strange);
    case_check(device_use() <= device, "%.10f %% of the devices' memory, %.10f before", device_use(), device);
    case_check(after < before + HOST_SLACK, "%.1f MB more", (after - before) / 1e6);
    case_check(serving_metric(&server, "models_used_bytes") == 0, "bytes are counted as used");
    case_end();
}

int main(void)
{
    static const char *const more[] = {"--model-memory",     ZOO_MEMORY, "--max-models",    "4",  "--max-batch", "8",
                                       "--max-batch-tokens", "64",       "--max-model-len", "96", NULL};
    zoo_open();
    case_begin("a server of many models");
    if (case_check(serving_start_models(&server, zoo.dir, (int)setting("MODELS_RANKS", 2), more, NULL), "no server")) {
        case_end();
        check_crowd(setting("SOAK_SECONDS", 120));
        check_policy();
        check_rounds((int)setting("MODELS_ROUNDS", 1000));
        case_begin("the server ends with status 0");
        int status = serving_stop(&server);
        case_check(status == 0, "status %d", status);
    }
    case_end();
    zoo_close();
    return cases_done();
}
