/* tests/unit/test_server.c - the parts of the server that need no client: endpoints, files, mailboxes, histograms,
 * the text of the metrics, waiting replies, signals. */
#include "tests/unit/unit.h"

#include "base/files.h"
#include "base/signals.h"
#include "coordinator/metrics/metrics_text.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/mailbox.h"
#include "tests/support/files.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void endpoints(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint;
        bool curve, insecure, good;
    } cases[] = {
        {"tcp://127.0.0.1:5555", false, false, true},
        {"tcp://127.0.0.1:*", false, false, true},
        {"tcp://127.1.2.3:1", false, false, true},
        {"tcp://localhost:5555", false, false, true},
        {"tcp://[::1]:5555", false, false, true},
        {"ipc:///tmp/x", false, false, true},
        {"ipc://x", false, false, true},
        {"tcp://*:5555", false, false, false},
        {"tcp://*:5555", true, false, true},
        {"tcp://*:5555", false, true, true},
        {"tcp://0.0.0.0:1", false, false, false},
        {"tcp://[::]:1", false, false, false},
        {"tcp://10.1.2.3:1", false, false, false},
        {"tcp://localhost.evil.example:1", false, false, false},
        {"tcp://128.0.0.1:1", false, false, false},
        {"ipc://@x", false, false, false},
        {"ipc://@x", true, false, true},
        {"inproc://x", true, true, false},
        {"udp://127.0.0.1:1", true, true, false},
        {"tcp://", true, true, false},
        {"ipc://", true, true, false},
        {"", true, true, false},
        {"127.0.0.1:5555", true, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err e = {0};
        bool good = transport_check(cases[i].endpoint, cases[i].curve, cases[i].insecure, &e) == 0;
        if (good != cases[i].good)
            print_error("%s: %s\n", cases[i].endpoint, good ? "accepted" : e.text);
        assert_int_equal(good, cases[i].good);
        assert_int_equal(e.code, good ? ERR_NONE : ERR_USAGE);
    }
    char path[300] = "ipc:///";
    struct err e = {0};
    memset(path + 7, 'x', 150);
    assert_int_equal(transport_check(path, false, false, &e), -1);
    EXPECT_PARTS(&e, ERR_USAGE, "a path of 151 bytes", "at most 107");
}

static void whole_files(void **state)
{
    (void)state;
    char folder[256], path[300];
    struct stat s;
    struct err e = {0};
    size_t bytes = 0;
    files_make_dir(folder);
    (void)snprintf(path, sizeof path, "%s/file", folder);
    mode_t mask = umask(0077); /* the mode is the requested one, whatever the mask */
    assert_int_equal(files_replace(path, "one", 3, 0644, &e), 0);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0644);
    assert_int_equal(files_replace(path, "second", 6, 0600, &e), 0);
    (void)umask(mask);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 07777, 0600);
    char *text = files_read(folder, "file", &bytes);
    assert_string_equal(text, "second");
    free(text);
    assert_int_equal(files_replace("/no/such/folder/file", "x", 1, 0600, &e), -1);
    EXPECT_PARTS(&e, ERR_IO, "/no/such/folder/file: cannot write: No such file");
    /* A marked file is removed once, and only while no other has replaced it. */
    struct file_mark mark;
    files_mark(&mark, path);
    assert_int_equal(files_replace(path, "newer", 5, 0600, &e), 0);
    files_remove_marked(&mark, path);
    files_remove_marked(&mark, path);
    assert_int_equal(stat(path, &s), 0);
    files_mark(&mark, path);
    files_remove_marked(&mark, path);
    assert_int_equal(stat(path, &s), -1);
    files_mark(&mark, path);
    assert_false(mark.known);
    /* No other file is left. */
    assert_int_equal(rmdir(folder), 0);
}

#define N_MESSAGES 20000

static void *count_messages(void *end)
{
    for (long expected = 1; expected <= N_MESSAGES;) {
        void *message = mailbox_take(end);
        if (message == NULL)
            (void)mailbox_wait(end, 1000);
        else if (message != (void *)expected++)
            return (void *)-1L;
    }
    (void)mailbox_post(end, end);
    return NULL;
}

static void mailboxes(void **state)
{
    (void)state;
    struct err e = {0};
    void *context = zmq_ctx_new(), *end[2], *result = NULL;
    pthread_t thread;
    assert_int_equal(mailbox_open(context, "test", end, &e), 0);
    assert_null(mailbox_take(end[0]));
    assert_false(mailbox_wait(end[0], 1));
    assert_int_equal(pthread_create(&thread, NULL, count_messages, end[1]), 0);
    for (long i = 1; i <= N_MESSAGES; i++)
        assert_true(mailbox_post(end[0], (void *)i));
    assert_true(mailbox_wait(end[0], 10000));
    assert_ptr_equal(mailbox_take(end[0]), end[1]);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    mailbox_close(&end[0]);
    mailbox_close(&end[1]);
    assert_int_equal(zmq_ctx_term(context), 0);
}

static void histograms(void **state)
{
    (void)state;
    struct buckets b = buckets_up_to(1024);
    const double want[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    assert_int_equal(b.n, 10);
    for (int i = 0; i < b.n; i++)
        assert_true(b.bound[i] == want[i]);
    assert_int_equal(buckets_up_to(INT32_MAX).n, 29);
    struct histogram h = {.buckets = &b}, more = {.buckets = &b};
    const double x[] = {0, 1, 1.5, 1000, 1001, 1e9};
    for (int i = 0; i < 6; i++)
        histogram_add(i < 3 ? &h : &more, x[i]);
    histogram_move(&h, &more);
    assert_int_equal(more.n, 0);
    assert_int_equal(h.n, 6);
    assert_true(h.sum == 0 + 1 + 1.5 + 1000 + 1001 + 1e9);
    assert_int_equal(h.count[0], 2); /* a bound belongs to its bucket */
    assert_int_equal(h.count[1], 1);
    assert_int_equal(h.count[9], 1);
    assert_int_equal(h.count[10], 2);
}

/* Parses one line of the exposition format strictly by its definition; returns its kind. */
static char kind_of(const char *line, char *name, char *labels, double *value)
{
    int used = 0;
    char type[32];
    if (sscanf(line, "# HELP %99[a-zA-Z0-9_:] %n", name, &used) == 1 && used > 0 && line[used] != '\0')
        return 'H';
    used = 0;
    if (sscanf(line, "# TYPE %99[a-zA-Z0-9_:] %31[a-z]%n", name, type, &used) == 2 && line[used] == '\0' &&
        (strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0 || strcmp(type, "histogram") == 0))
        return type[0];
    size_t n = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789_:");
    if (n == 0 || line[n] != '{')
        return '?';
    (void)snprintf(name, 100, "%.*s", (int)n, line);
    const char *at = line + n + 1, *begin = at;
    for (;;) { /* label="value", with \\, \" and \n */
        size_t letters = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
        if (letters == 0 || at[letters] != '=' || at[letters + 1] != '"')
            return '?';
        for (at += letters + 2; *at != '"'; at++)
            if (*at == '\0' || (*at == '\\' && strchr("\\\"n", *++at) == NULL))
                return '?';
        if (*++at == '}')
            break;
        if (*at++ != ',')
            return '?';
    }
    (void)snprintf(labels, 500, "%.*s", (int)(at - begin), begin);
    char *end = NULL;
    *value = strtod(at + 2, &end);
    return at[1] == ' ' && end != at + 2 && *end == '\0' && isfinite(*value) ? 's' : '?';
}

static const char *const vllms[] = {"num_requests_running",
                                    "num_requests_waiting",
                                    "num_requests_waiting_by_reason",
                                    "kv_cache_usage_perc",
                                    "cache_config_info",
                                    "prompt_tokens_total",
                                    "prompt_tokens_by_source_total",
                                    "generation_tokens_total",
                                    "num_preemptions_total",
                                    "prefix_cache_queries_total",
                                    "prefix_cache_hits_total",
                                    "spec_decode_num_drafts_total",
                                    "spec_decode_num_draft_tokens_total",
                                    "spec_decode_num_accepted_tokens_total",
                                    "spec_decode_num_accepted_tokens_per_pos_total",
                                    "request_success_total",
                                    "iteration_tokens_total",
                                    "time_to_first_token_seconds",
                                    "inter_token_latency_seconds",
                                    "time_per_output_token_seconds",
                                    "request_time_per_output_token_seconds",
                                    "e2e_request_latency_seconds",
                                    "request_queue_time_seconds",
                                    "request_inference_time_seconds",
                                    "request_prefill_time_seconds",
                                    "request_decode_time_seconds",
                                    "request_prompt_tokens",
                                    "request_generation_tokens",
                                    "request_max_num_generation_tokens",
                                    "request_prefill_kv_computed_tokens",
                                    "request_params_n",
                                    "request_params_max_tokens"};

/* Tells whether this, with a prefix and perhaps a histogram's suffix, is one of vLLM's names. */
static bool is_vllms(const char *name)
{
    static const char *const suffixes[] = {"", "_bucket", "_sum", "_count"};
    char whole[100];
    const char *bare = name + strcspn(name, ":_") + 1;
    for (size_t i = 0; i < sizeof vllms / sizeof vllms[0]; i++)
        for (int k = 0; k < 4; k++) {
            (void)snprintf(whole, sizeof whole, "%s%s", vllms[i], suffixes[k]);
            if (strcmp(bare, whole) == 0)
                return true;
        }
    return false;
}

/* Each name is described once, before its samples, which are contiguous; buckets grow up to the count. */
static int check_exposition(char *text, const char *prefix, int *n_vllm)
{
    char described[100] = "", name[100], labels[500], type = '?';
    double value = 0, last = 0;
    int n = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"), n++) {
        char kind = kind_of(line, name, labels, &value);
        if (kind == '?')
            print_error("%s\n", line);
        assert_int_not_equal(kind, '?');
        bool vllm = is_vllms(name);
        *n_vllm += vllm && kind == 'H';
        if (strncmp(name, vllm ? prefix : "lockstep_", strlen(vllm ? prefix : "lockstep_")) != 0)
            print_error("%s\n", name);
        assert_int_equal(strncmp(name, vllm ? prefix : "lockstep_", strlen(vllm ? prefix : "lockstep_")), 0);
        if (kind == 'H')
            (void)snprintf(described, sizeof described, "%s", name);
        else if (kind != 's') {
            assert_string_equal(name, described);
            type = kind;
            last = 0;
        } else {
            assert_int_equal(strncmp(name, described, strlen(described)), 0);
            const char *suffix = name + strlen(described);
            bool bucket = strcmp(suffix, "_bucket") == 0;
            assert_true(type == 'h' ? bucket || strcmp(suffix, "_sum") == 0 || strcmp(suffix, "_count") == 0
                                    : *suffix == '\0');
            if (bucket)
                assert_true(value >= last);
            if (strcmp(suffix, "_count") == 0)
                assert_true(value == last);
            last = strcmp(suffix, "_sum") == 0 ? last : value;
        }
    }
    return n;
}

static void exposition(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct metrics m;
        struct report r = {.loaded = true,
                           .max_len = 1000,
                           .n_blocks = 64,
                           .max_seqs = 4,
                           .between_tokens.buckets = &buckets_token,
                           .iteration.buckets = &buckets_iteration,
                           .n_ranks = 2};
        struct replicas replicas;
        struct text_buffer text = {0};
        struct err e = {0};
        void *context = zmq_ctx_new();
        int replica = -1;
        assert_int_equal(replicas_open(&replicas, context, 1, 1, 2, &e), 0);
        assert_int_equal(metrics_open(&m, k == 0 ? METRICS_LOCKSTEP : METRICS_VLLM, "a \"model\" of \\ two\nlines",
                                      &replicas, true, &e),
                         0);
        r.stats.n_blocks = 64;
        r.stats.n_blocks_used = 16;
        r.stats.n_draft_places = 2;
        r.stats.n_drafts = 3;
        r.stats.n_accepted[0] = 2;
        r.stats.n_accepted[1] = 1;
        histogram_add(&r.between_tokens, 0.02);
        r.ranks = calloc(2, sizeof *r.ranks); /* no measurement: absent, not NaN */
        r.recent = calloc(2, sizeof *r.recent);
        r.ranks[0].joules = 12.5;
        r.ranks[1].joules = k == 0 ? 2 : NAN;
        assert_true(mailbox_post(replicas.replica[0].end[1], &r));
        assert_true(mailbox_wait(replicas.replica[0].end[0], 10000));
        assert_ptr_equal(replicas_take(&replicas, &replica), &r);
        assert_int_equal(replica, 0);
        metrics_take(&m, &r, 0);
        free(r.ranks);
        free(r.recent);
        struct protocol_generate g = {.search.n = 1, .rules.max_tokens = 16};
        const struct outcome good = {.code = PROTOCOL_OK,
                                     .time = {.queue = 1, .prefill = 2, .decode = 4, .overhead = 0.5, .total = 7.5},
                                     .first_token = 3,
                                     .n_prompt = 5,
                                     .n_output = 9,
                                     .per_token = 0.5},
                             bad = {.code = PROTOCOL_TIMEOUT};
        metrics_count(&m, &good, &g, 0);
        metrics_count(&m, &bad, &g, 0);
        assert_int_equal(metrics_write(&m, &text, &e), 0);
        const char *prefix = k == 0 ? "lockstep_" : "vllm:";
        char want[300];
        (void)snprintf(want, sizeof want,
                       "\n%skv_cache_usage_perc{model_name=\"a \\\"model\\\" of \\\\ two\\nlines\"%s} 0.25\n", prefix,
                       k == 0 ? "" : ",engine=\"0\"");
        assert_non_null(strstr(text.data, want));
        assert_non_null(strstr(text.data, ",code=\"408\"} 1\n"));
        assert_non_null(strstr(text.data, "position=\"1\"} 1\n"));
        assert_null(strstr(text.data, "position=\"2\""));
        if (k == 0)
            assert_non_null(strstr(text.data, ",rank=\"0\",host=\"\"} 12.5\n"));
        else /* one rank has no value: no false sum */
            assert_null(strstr(text.data, "energy_joules"));
        assert_non_null(strstr(text.data, k == 0 ? "lines\",le=\"0.025\"} 1\n" : "engine=\"0\",le=\"0.025\"} 1\n"));
        assert_int_equal(text.data[text.bytes - 1], '\n');
        int n_vllm = 0;
        assert_true(check_exposition(text.data, prefix, &n_vllm) > 300);
        assert_int_equal(n_vllm, sizeof vllms / sizeof vllms[0]);
        text_free(&text);
        metrics_close(&m);
        replicas_close(&replicas);
        (void)zmq_ctx_term(context);
    }
}

static void forget(void *context, struct client *one)
{
    (void)one;
    ++*(int *)context;
}

/* Replies to a client whose pipe is full: a socket without a peer would report that it is gone, so the test fills the
 * queue behind a first reply itself. */
static void backlog(void **state)
{
    (void)state;
    struct clients c = {0};
    struct transport t = {0};
    struct channel_name channel = {.number = 1, .fd = 5}, other = {.number = 2, .fd = 5};
    struct client *one = clients_find(&c, &channel);
    assert_ptr_equal(clients_find(&c, &channel), one);
    one->first = one->last = calloc(1, sizeof *one->first);
    *one->first = (struct outgoing){.text = strdup("first"), .bytes = 5, .task = 1};
    one->backlog = c.backlog = 5;
    for (int i = 0; i < 6; i++)
        clients_send(&c, &t, one,
                     (struct outgoing){.text = strdup("0123456789"), .bytes = 10, .task = 1 + i % 2, .tokens = i < 4});
    assert_int_equal(one->backlog, 65);
    clients_take_back(&c, one, 2); /* two events of task 2; its last reply stays */
    assert_int_equal(one->backlog, 45);
    assert_int_equal(c.backlog, 45);
    int n = 0, gone = 0;
    for (const struct outgoing *o = one->first; o != NULL; o = o->next, n++)
        assert_true(o->task == 1 || !o->tokens);
    assert_int_equal(n, 5);
    assert_int_equal(clients_cut(&c, &t, 45), 0);
    /* Another connection is another client, whatever its descriptor number. */
    struct client *two = clients_find(&c, &other);
    assert_ptr_not_equal(two, one);
    assert_false(one->gone);
    clients_gone_channel(&c, &channel);
    assert_true(one->gone);
    clients_sweep(&c, forget, &gone);
    assert_int_equal(gone, 1);
    assert_int_equal(c.n, 1);
    assert_int_equal(c.backlog, 0);
    clients_gone_channel(&c, &channel); /* again: the client no longer has a connection */
    assert_false(two->gone);
    clients_gone_channel(&c, &other);
    assert_true(two->gone);
    clients_close(&c);
}

/* A party lasts as long as it has tasks; beyond the limit names count as none. */
static void parties(void **state)
{
    (void)state;
    enum { MORE = CLIENT_PARTIES + 2 };
    struct clients c = {0};
    struct channel_name channel = {.number = 9, .fd = 5};
    struct client *one = clients_find(&c, &channel);
    struct task *task = calloc(MORE, sizeof *task);
    char name[32];
    client_add_task(one, &task[0], "");
    assert_ptr_equal(task[0].ticket.party, &one->own);
    assert_int_equal(task[0].asker, 9);
    assert_int_equal(task[0].party, 0);
    client_remove_task(&task[0]);
    for (int i = 0; i < MORE; i++) {
        (void)snprintf(name, sizeof name, "%d", i);
        client_add_task(one, &task[i], name);
    }
    assert_int_equal(one->n_parties, CLIENT_PARTIES);
    assert_string_equal(task[CLIENT_PARTIES - 1].ticket.party->name, "4095");
    assert_ptr_equal(task[CLIENT_PARTIES].ticket.party, &one->own);
    assert_int_equal(one->own.n_tasks, 2);
    client_remove_task(&task[0]);
    client_add_task(one, &task[0], "1"); /* known */
    assert_ptr_equal(task[0].ticket.party, task[1].ticket.party);
    assert_int_equal(one->n_parties, CLIENT_PARTIES - 1);
    client_remove_task(&task[1]);
    assert_string_equal(task[0].ticket.party->name, "1");
    client_add_task(one, &task[1], "new"); /* never the number of another */
    assert_int_equal(task[1].party, CLIENT_PARTIES + 1);
    for (int i = 0; i < MORE; i++)
        client_remove_task(&task[i]);
    assert_int_equal(one->n_parties + one->own.n_tasks, 0);
    assert_null(one->parties);
    free(task);
    clients_close(&c);
}

/* Lets the server receive a message, and returns its reply, which waits behind another one; NULL: none came. The caller
 * frees it. */
static char *receive(struct server *s, const char *json)
{
    struct incoming m = {.channel = {.number = 1, .fd = 5}, .n_frames = 1};
    struct client *c = clients_find(&s->clients, &m.channel);
    assert_int_equal(zmq_msg_init_size(&m.body, strlen(json)), 0);
    memcpy(zmq_msg_data(&m.body), json, strlen(json));
    c->first = c->last = calloc(1, sizeof *c->first);
    server_receive(s, &m);
    char *text = c->first != c->last ? c->last->text : NULL;
    free(c->first != c->last ? c->last : NULL);
    free(c->first);
    c->first = c->last = NULL;
    s->clients.backlog = c->backlog = 0;
    return text;
}

/* A refusal names its request also if the message is not parsed, or cannot be. */
static void refusals(void **state)
{
    (void)state;
    enum { BYTES = 100 << 10 };
    const struct serve_options o = {.max_client_backlog = 1 << 20};
    struct server s = {.setup.o = &o, .open_bytes = (size_t)2 << 30, .metrics.replicas = &s.replicas};
    char *json = malloc(BYTES + 1);
    for (int large = 0; large < 2; large++) {
        const int n = snprintf(json, BYTES, "{\"on_behalf_of\":\"ann\",\"request_id\":\"r-1\",\"prompt\":\"");
        memset(json + n, large ? 'x' : '\0', (size_t)(BYTES - n)); /* the text ends within a string if it is small */
        json[BYTES] = '\0';
        char *reply = receive(&s, json);
        assert_non_null(reply);
        assert_non_null(strstr(reply, "\"request_id\":\"r-1\""));
        assert_non_null(strstr(reply, large ? "\"code\":429" : "\"code\":400"));
        free(reply);
    }
    assert_true(s.open_bytes == (size_t)2 << 30 && s.n_open == 0);
    assert_int_equal(s.clients.first->n_parties, 0);
    free(json);
    clients_close(&s.clients);
}

/* A named party has half of its client's memory, unless it has a single request. */
static void memory_of_parties(void **state)
{
    (void)state;
    const size_t most = (size_t)300 << 20; /* of a party 256 MiB, of a client 512 */
    struct server s = {.metrics.replicas = &s.replicas};
    struct channel_name channel = {.number = 1, .fd = 5};
    struct client *c = clients_find(&s.clients, &channel);
    struct task one = {.result_bytes = most}, two = {.result_bytes = most}, more = {.result_bytes = most};
    client_add_task(c, &one, "ann");
    assert_int_equal(server_reserve_results(&s, &one), 0);
    client_add_task(c, &two, "ann");
    assert_int_equal(server_reserve_results(&s, &two), -1);
    two.result_bytes = 1;
    assert_int_equal(server_reserve_results(&s, &two), -1);
    client_add_task(c, &more, "bob");
    assert_int_equal(server_reserve_results(&s, &more), -1); /* the client's are too many */
    server_unlist(&s, &one);
    client_remove_task(&one);
    more.result_bytes = most;
    assert_int_equal(server_reserve_results(&s, &more), 0);
    assert_int_equal(c->open_bytes, most);
    server_unlist(&s, &two);
    client_remove_task(&two);
    server_unlist(&s, &more);
    client_remove_task(&more);
    assert_int_equal(s.open_bytes + c->open_bytes + (size_t)c->n_parties, 0);
    clients_close(&s.clients);
}

/* However often a request is cancelled, its replica is told once. */
static void cancels(void **state)
{
    (void)state;
    struct err e = {0};
    struct server s = {0};
    struct task j = {.number = 7, .ticket.in_replica = true};
    void *context = zmq_ctx_new();
    int n = 0;
    assert_int_equal(replicas_open(&s.replicas, context, 1, 1, 1, &e), 0);
    for (int i = 0; i < 1000; i++)
        server_cancel(&s, &j, FINISH_CANCELLED);
    for (struct order *o; (o = mailbox_take(s.replicas.replica[0].end[1])) != NULL; n++) {
        assert_int_equal(o->kind, ORDER_CANCEL);
        assert_int_equal(o->number, 7);
        free(o);
    }
    assert_int_equal(n, 1);
    replicas_close(&s.replicas);
    assert_int_equal(zmq_ctx_term(context), 0);
}

static void signal_wishes(void **state)
{
    (void)state;
    struct err e = {0};
    (void)signal(SIGHUP, SIG_DFL); /* nohup ignores it */
    assert_int_equal(signals_open(true, &e), 0);
    assert_false(signals_pending());
    assert_int_equal(signals_take(), WISH_NONE);
    (void)raise(SIGUSR1);
    assert_true(signals_pending());
    (void)raise(SIGTERM);
    (void)raise(SIGUSR1);
    assert_int_equal(signals_take(), WISH_END);
    assert_int_equal(signals_take(), WISH_NONE);
    assert_false(signals_pending());
    (void)raise(SIGINT);
    const struct err first = {ERR_DEVICE, "the device is gone"}, second = {ERR_COMM, "so is the rank"};
    assert_false(signals_unreported()); /* nobody listens */
    signals_listen(true);
    signals_fail(&first);
    signals_fail(&second);
    assert_true(signals_unreported());
    assert_int_equal(signals_take(), WISH_FAIL);
    assert_int_equal(signals_failure()->code, ERR_DEVICE);
    assert_string_equal(signals_failure()->text, "the device is gone");
    signals_reported();
    assert_false(signals_unreported());
    signals_listen(false);
    (void)raise(SIGHUP);
    assert_int_equal(signals_take(), WISH_END);
    (void)raise(SIGCONT);
    assert_int_equal(signals_take(), WISH_SYNC);
    (void)raise(SIGUSR2);
    (void)raise(SIGCONT);
    assert_int_equal(signals_take(), WISH_TELL);
    (void)raise(SIGUSR1);
    (void)raise(SIGUSR2);
    assert_int_equal(signals_take(), WISH_DRAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(endpoints),  cmocka_unit_test(whole_files),   cmocka_unit_test(mailboxes),
        cmocka_unit_test(histograms), cmocka_unit_test(exposition),    cmocka_unit_test(backlog),
        cmocka_unit_test(parties),    cmocka_unit_test(refusals),      cmocka_unit_test(memory_of_parties),
        cmocka_unit_test(cancels),    cmocka_unit_test(signal_wishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
