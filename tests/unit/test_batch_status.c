/* tests/unit/test_batch_status.c - coordinator/batch/status.c, speed.c and outlets.c: known values are reported,
 * unknown ones are absent, and files are complete whenever they are read. */
#include "tests/unit/unit.h"

#include "coordinator/batch/outlets.h"
#include "tests/support/files.h"
#include "text/tokenizer/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#define MARK "\xef\xbf\xbd" /* U+FFFD */

/* A status before the first report. */
struct untold {
    void *context;
    struct replicas replicas;
    struct metrics metrics;
};

static void untold_open(struct untold *u)
{
    struct err e = {0};
    u->context = zmq_ctx_new();
    assert_int_equal(replicas_open(&u->replicas, u->context, 1, 1, 2, &e), 0);
    assert_int_equal(metrics_open(&u->metrics, METRICS_LOCKSTEP, "m", &u->replicas, true, &e), 0);
}

static void untold_close(struct untold *u)
{
    metrics_close(&u->metrics);
    replicas_close(&u->replicas);
    (void)zmq_ctx_term(u->context);
}

static struct status nothing(void)
{
    return (struct status){.state = STATUS_LOADING,
                           .cause = "",
                           .model = "m",
                           .output = "out",
                           .host = "h",
                           .n_ranks = 2,
                           .share = {.count = 1, .task = -1},
                           .total = NAN,
                           .speed = {NAN, NAN, NAN},
                           .walltime_left = INFINITY,
                           .walltime_source = "",
                           .joules = NAN};
}

static struct status busy(void)
{
    struct status s = nothing();
    s.state = STATUS_RUNNING;
    s.n_read = 300;
    s.n_before = 100;
    s.n_done = 120;
    s.n_failed = 3;
    s.n_open = 80;
    s.total = 1000;
    s.prompt_tokens = 500;
    s.cached_tokens = 100;
    s.output_tokens = 600;
    s.speed = (struct speed_counts){12, 100, 50};
    s.walltime_left = 59;
    s.walltime_source = "--max-walltime";
    s.joules = 2000;
    return s;
}

static void totals(void **unused)
{
    (void)unused;
    assert_true(isnan(status_total(0, false, 1000, 0)));
    assert_true(isnan(status_total(10, false, 0, 100))); /* standard input */
    assert_true(status_total(10, false, 1000, 100) == 100);
    assert_true(status_total(10, true, 1000, 100) == 10);
    assert_true(status_total(10, false, 90, 100) == 10); /* a file that grew */
}

static void time_and_energy(void **unused)
{
    (void)unused;
    struct status s = busy();
    assert_true(status_eta(&s) == 65);             /* 780 at 12 per second */
    assert_true(status_joules_per_token(&s) == 2); /* 1000 tokens were computed */
    s.joules = NAN;
    assert_true(isnan(status_joules_per_token(&s)));
    s.speed.requests = 0;
    assert_true(isnan(status_eta(&s)));
    s = busy();
    s.total = 220;
    assert_true(status_eta(&s) == 0);
    s.total = NAN;
    assert_true(isnan(status_eta(&s)));
    s = busy();
    s.state = STATUS_ENDED;
    assert_true(isnan(status_eta(&s)));
    s = nothing();
    assert_true(isnan(status_eta(&s)) && isnan(status_joules_per_token(&s)));
}

static void in_words(void **unused)
{
    (void)unused;
    char text[600];
    struct status s = busy();
    status_line(&s, text, sizeof text);
    assert_string_equal(text,
                        "running: 220 of about 1000 requests (22 %), 3 failed, 80 under way; 12.0 requests/s, 100 + 50 "
                        "tokens/s in + out, 1:05 to go, 0:59 of the walltime left: not all will be done; 2.00 J/token");
    s.walltime_left = 66;
    s.total_is_known = true;
    status_note(&s, text, sizeof text);
    assert_string_equal(text, "3 failed, 50 tokens/s, 1:05 to go, 1:06 of the walltime left");
    status_comment(&s, text, sizeof text);
    assert_string_equal(text, "running done=220/1000 failed=3 tok/s=50 eta=1:05");
    s = nothing();
    status_line(&s, text, sizeof text);
    assert_string_equal(text, "loading: 0 requests");
    s.state = STATUS_ENDED;
    s.cause = "SIGUSR1";
    s.n_left = 5;
    status_line(&s, text, sizeof text);
    assert_string_equal(text, "ended (SIGUSR1): 0 requests, 5 left to the next run");
    for (size_t bytes = 1; bytes < 100; bytes++) { /* truncated, without writing past the end */
        char small[128];
        memset(small, '#', sizeof small);
        s = busy();
        status_line(&s, small, bytes);
        assert_true(strlen(small) == bytes - 1 && small[bytes] == '#');
    }
}

static void as_json(void **unused)
{
    (void)unused;
    struct status s = busy();
    json_t *o = status_json(&s), *requests = json_object_get(o, "requests");
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "running");
    assert_true(json_is_null(json_object_get(o, "exit_status")) && json_is_null(json_object_get(o, "cause")));
    assert_int_equal(json_integer_value(json_object_get(requests, "total")), 1000);
    assert_true(json_is_true(json_object_get(requests, "total_is_estimate")));
    assert_int_equal(json_integer_value(json_object_get(requests, "done_before")), 100);
    assert_true(json_number_value(json_object_get(o, "eta_seconds")) == 65);
    assert_true(json_is_false(json_object_get(o, "will_finish")));
    assert_true(json_number_value(json_object_get(json_object_get(o, "energy"), "joules_per_token")) == 2);
    json_decref(o);
    s = nothing();
    s.state = STATUS_ENDED;
    s.exit_status = 75;
    s.cause = "SIGUSR1";
    o = status_json(&s);
    assert_int_equal(json_integer_value(json_object_get(o, "exit_status")), 75);
    assert_string_equal(json_string_value(json_object_get(o, "cause")), "SIGUSR1");
    static const char *const unknown[] = {"energy", "walltime", "eta_seconds", "will_finish", "slurm_job_id"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_true(json_is_null(json_object_get(o, unknown[i])));
    assert_true(json_is_null(json_object_get(json_object_get(o, "requests"), "total")));
    assert_true(json_is_null(json_object_get(json_object_get(o, "per_second"), "requests")));
    json_decref(o);
}

static void as_metrics(void **unused)
{
    (void)unused;
    struct untold u;
    struct text_buffer text = {0};
    struct err e = {0};
    struct status s = busy();
    untold_open(&u);
    s.job = "17";
    assert_int_equal(status_metrics(&s, &u.metrics, &text, &e), 0);
    assert_non_null(strstr(text.data, "\nlockstep_batch_done_total{model_name=\"m\",slurm_job_id=\"17\"} 120\n"));
    assert_non_null(strstr(text.data, "\nlockstep_batch_joules_per_token{model_name=\"m\",slurm_job_id=\"17\"} 2\n"));
    assert_non_null(strstr(text.data, "# TYPE lockstep_num_requests_running gauge"));
    text_free(&text);
    s = nothing();
    assert_int_equal(status_metrics(&s, &u.metrics, &text, &e), 0);
    assert_null(strstr(text.data, "joules"));
    assert_null(strstr(text.data, "eta_seconds"));
    assert_null(strstr(text.data, "nan"));
    assert_null(strstr(text.data, "inf\n"));
    text_free(&text);
    s.model = "models/\xc3\xa9t\xe9\xf0\x9f\"";
    assert_int_equal(status_metrics(&s, &u.metrics, &text, &e), 0);
    assert_non_null(strstr(text.data, "{model_name=\"models/\xc3\xa9t" MARK MARK MARK "\\\"\"}"));
    assert_int_equal(utf8_invalid_at(text.data, text.bytes), text.bytes);
    text_free(&text);
    untold_close(&u);
}

static void speeds(void **unused)
{
    (void)unused;
    struct speed s = {0};
    struct speed_counts c = {0, 0, 0};
    assert_true(isnan(speed_of(&s, &c, 5).requests));
    speed_note(&s, &c, 10);
    c = (struct speed_counts){3, 30, 300};
    assert_true(isnan(speed_of(&s, &c, 10.5).requests)); /* too early */
    assert_true(speed_of(&s, &c, 13).requests == 1 && speed_of(&s, &c, 13).output_tokens == 100);
    for (int t = 11; t <= 500; t++) { /* ten per second, then none for a minute: forgotten */
        c.requests = t < 400 ? 10 * t : 4000;
        speed_note(&s, &c, t);
        speed_note(&s, &c, t + 0.1);
        if (t == 390)
            assert_true(fabs(speed_of(&s, &c, t).requests - 10) < 1e-9);
    }
    assert_true(speed_of(&s, &c, 500).requests == 0);
}

static void outlets(void **unused)
{
    (void)unused;
    char dir[256], status_file[300], metrics_file[300];
    struct outlets out;
    struct untold u;
    struct status s = busy();
    files_make_dir(dir);
    (void)snprintf(status_file, sizeof status_file, "%s/s.json", dir);
    (void)snprintf(metrics_file, sizeof metrics_file, "%s/m.prom", dir);
    untold_open(&u);
    const struct outlets_setup setup = {PROGRESS_NEVER, 0, status_file, metrics_file, NULL};
    outlets_open(&out, &setup, 100);
    assert_true(outlets_wait(&out, 100) == 0); /* a first file at once */
    outlets_show(&out, &s, &u.metrics, 100);
    assert_true(access(status_file, F_OK) == 0 && access(metrics_file, F_OK) == 0);
    double wait = outlets_wait(&out, 100);
    assert_true(wait > 1 && wait < 60);
    (void)unlink(status_file);
    outlets_show(&out, &s, &u.metrics, 100 + wait / 2); /* not due */
    assert_int_equal(access(status_file, F_OK), -1);
    outlets_show(&out, &s, &u.metrics, 100 + wait);
    assert_int_equal(access(status_file, F_OK), 0);
    s.state = STATUS_ENDED;
    outlets_close(&out, &s, 200);
    json_t *o = json_load_file(status_file, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "ended");
    json_decref(o);
    assert_int_equal(access(metrics_file, F_OK), -1);
    outlets_open(&out, &setup, 300);
    outlets_show(&out, &s, &u.metrics, 300);
    assert_int_equal(access(metrics_file, F_OK), 0);
    s.state = STATUS_FAILED;
    s.model = s.output = "\xff.jsonl"; /* not UTF-8 */
    outlets_fail(&out, &s, 301);
    o = json_load_file(status_file, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "failed");
    assert_string_equal(json_string_value(json_object_get(o, "output")), "\xef\xbf\xbd.jsonl");
    json_decref(o);
    assert_int_equal(access(metrics_file, F_OK), -1);
    untold_close(&u);
    files_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(totals),  cmocka_unit_test(time_and_energy), cmocka_unit_test(in_words),
        cmocka_unit_test(as_json), cmocka_unit_test(as_metrics),      cmocka_unit_test(speeds),
        cmocka_unit_test(outlets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
