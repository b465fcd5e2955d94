/* commands/generate.c - see generate.h. */
#include "commands/generate.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/open_line.h"
#include "commands/generation.h"
#include "coordinator/drafts/draft_options.h"
#include "protocol/reply_parts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The request of a prompt; a prompt that cannot run becomes a finished request with an error. */
static void prepare_request(struct generate *g, int i, const struct model_config *m, int32_t bos)
{
    struct prompt *p = &g->prompts.prompt[i];
    struct request *r = &g->request[i];
    *r = (struct request){.rules = &g->rules, .index = i, .slot = -1};
    (void)prompt_encode(p, g->texts->tokenizer, g->o, m->vocab, bos, &r->error);
    r->prompt = p->ids;
    r->prompt_text = p->text;
    r->prompt_bytes = p->text_bytes;
    p->ids = (struct token_list){0};
    p->text = NULL;
    int64_t length = (int64_t)r->prompt.n + g->rules.max_tokens;
    if (r->error.code == ERR_NONE && length > model_context(m))
        ERR(&r->error, ERR_INPUT, "%zu prompt tokens + --max-tokens %d = %lld, the model has %d positions", r->prompt.n,
            g->rules.max_tokens, (long long)length, model_context(m));
    if (r->error.code == ERR_NONE && g->o->run.max_model_len > 0 && length > g->o->run.max_model_len)
        ERR(&r->error, ERR_INPUT, "%zu prompt tokens + --max-tokens %d = %lld, more than --max-model-len %lld",
            r->prompt.n, g->rules.max_tokens, (long long)length, (long long)g->o->run.max_model_len);
    if (r->error.code == ERR_NONE && length > 1 << 28)
        ERR(&r->error, ERR_INPUT, "%lld tokens, at most %d are accepted", (long long)length, 1 << 28);
    if (r->error.code != ERR_NONE)
        r->finish = FINISH_ERROR;
    else if (length > g->longest)
        g->longest = (int)length;
}

/* Options that would have no effect. */
static int check_unused(const struct generate_options *o, struct err *e)
{
    if (o->logprobs >= 0 && !o->run.json)
        return ERR(e, ERR_USAGE, "--logprobs needs --json");
    if (o->prompt_logprobs >= 0 && !o->run.json)
        return ERR(e, ERR_USAGE, "--prompt-logprobs needs --json");
    if (o->no_echo && o->run.json)
        return ERR(e, ERR_USAGE, "--no-echo: --json never has the prompt in its texts");
    if (o->include_stop && o->n_stop == 0)
        return ERR(e, ERR_USAGE, "--include-stop-str-in-output belongs to --stop, which is not given");
    if ((o->no_special || o->plain_text) && o->prompt_ids != NULL)
        return ERR(e, ERR_USAGE, "--%s: no text is tokenized with --prompt-ids",
                   o->no_special ? "no-add-special-tokens" : "plain-text");
    return 0;
}

static int open_output(struct generate *g, struct err *e)
{
    const struct generate_options *o = g->o;
    g->out = o->output != NULL ? fopen(o->output, g->goes_on ? "ae" : "we") : stdout;
    if (g->out == NULL)
        return ERR(e, ERR_IO, "%s: cannot create: %s", o->output, strerror(errno));
    g->streams = g->n == 1 && g->name == NULL && !o->run.json && o->output == NULL &&
                 o->run.progress != PROGRESS_NEVER &&
                 (o->run.progress == PROGRESS_ALWAYS || terminal_behind(STDOUT_FILENO));
    return 0;
}

int generate_open(struct generate *g, const struct generate_options *o, const struct generate_model *model,
                  struct err *e)
{
    const struct model_config *m = model->config;
    int32_t bos = -1;
    memset(g, 0, sizeof *g);
    g->o = o;
    g->name = model->name;
    g->texts = model->texts;
    g->started = seconds_now();
    g->joules = NAN;
    if (check_unused(o, e) != 0 || generation_rules(&g->rules, &bos, o, m->vocab, e) != 0 ||
        prompts_read(&g->prompts, o, m->vocab, e) != 0)
        return -1;
    g->n = g->prompts.n;
    g->request = err_calloc(e, (size_t)g->n, sizeof *g->request, "requests");
    if (g->request == NULL)
        return -1;
    for (int i = 0; i < g->n; i++)
        prepare_request(g, i, m, bos);
    g->goes_on = model->goes_on;
    return open_output(g, e);
}

static const char *output_name(const struct generate *g)
{
    return g->o->output != NULL ? g->o->output : "standard output";
}

static void write_out(struct generate *g, const char *text, size_t bytes)
{
    if (g->output_error.code == ERR_NONE && (fwrite(text, 1, bytes, g->out) != bytes || fflush(g->out) != 0))
        ERR(&g->output_error, ERR_IO, "%s: cannot write: %s", output_name(g), strerror(errno));
    open_line_note(text, bytes);
}

static json_t *json_ids(const struct token_list *ids)
{
    json_t *list = json_array();
    for (size_t i = 0; i < ids->n; i++)
        (void)json_array_append_new(list, json_integer(ids->id[i]));
    return list;
}

static json_t *json_sampled(const struct sampled *s, int n_top)
{
    json_t *top = json_array();
    for (int k = 0; k < n_top; k++)
        (void)json_array_append_new(top, json_pack("[i, o]", s->top_id[k], json_logprob(s->top_logprob[k])));
    return json_pack("{s:i, s:o, s:o}", "token_id", s->token, "logprob", json_logprob(s->logprob), "top", top);
}

static json_t *json_logprobs(const struct request *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->output.n; i++)
        (void)json_array_append_new(list, json_sampled(&r->logprobs[i], r->rules->sampling.n_top));
    return list;
}

/* One entry per token of the prompt; null for the first, which has no predecessor. None when the prompt did not run. */
static json_t *json_prompt_logprobs(const struct request *r)
{
    json_t *list = json_array();
    if (r->n_scored + 1 == (int)r->prompt.n)
        (void)json_array_append_new(list, json_null());
    for (int i = 0; i < r->n_scored; i++)
        (void)json_array_append_new(list, json_sampled(&r->prompt_logprobs[i], r->rules->sampling.n_prompt_top));
    return list;
}

static void print_json(struct generate *g, const struct request *r)
{
    json_t *object = json_pack("{s:i, s:o, s:o, s:s#, s:s}", "index", r->index, "prompt_ids", json_ids(&r->prompt),
                               "token_ids", json_ids(&r->output), "text", r->text.data != NULL ? r->text.data : "",
                               (int)r->text.bytes, "finish_reason", finish_name(r->finish));
    if (g->name != NULL)
        (void)json_object_set_new(object, "model", reply_text(g->name));
    if (r->rules->want_logprobs)
        (void)json_object_set_new(object, "logprobs", json_logprobs(r));
    if (r->rules->want_prompt_logprobs)
        (void)json_object_set_new(object, "prompt_logprobs", json_prompt_logprobs(r));
    if (r->finish == FINISH_ERROR)
        (void)json_object_set_new(object, "error", reply_text(r->error.text));
    char *line = json_text(object, JSON_COMPACT);
    json_decref(object);
    if (line == NULL) {
        ERR(&g->output_error, ERR_INTERNAL, "result %d cannot be written as JSON", r->index);
        return;
    }
    write_out(g, line, strlen(line));
    write_out(g, "\n", 1);
    free(line);
}

static void print_error(const struct generate *g, const struct request *r)
{
    int line = g->prompts.prompt[r->index].line;
    if (line > 0)
        (void)fprintf(stderr, "lockstep: %s: line %d: %s\n", g->o->prompts, line, r->error.text);
    else
        (void)fprintf(stderr, "lockstep: prompt: %s\n", r->error.text);
}

static void print_prompt(struct generate *g, const struct request *r)
{
    if (!g->o->no_echo && r->prompt_text != NULL)
        write_out(g, r->prompt_text, r->prompt_bytes);
}

static void print_text(struct generate *g, const struct request *r)
{
    if (g->n > 1 || g->name != NULL) {
        char header[512];
        int n = snprintf(header, sizeof header, "%s==> %.300s%sprompt %d of %d <==\n",
                         r->index > 0 || g->goes_on ? "\n" : "", g->name != NULL ? g->name : "",
                         g->name != NULL ? ": " : "", r->index + 1, g->n);
        write_out(g, header, (size_t)n);
    }
    if (r->finish == FINISH_ERROR)
        return;
    if (!g->streams)
        print_prompt(g, r);
    if (r->text.bytes > g->streamed)
        write_out(g, r->text.data + g->streamed, r->text.bytes - g->streamed);
    write_out(g, "\n", 1);
}

/* Print every finished request whose predecessors are printed. */
static void print_finished(struct generate *g)
{
    for (; g->next_to_print < g->n && g->request[g->next_to_print].finish != FINISH_NONE; g->next_to_print++) {
        struct request *r = &g->request[g->next_to_print];
        if (r->n_in_flight > 0)
            return;
        progress_clear(&g->progress);
        if (r->finish == FINISH_ERROR)
            print_error(g, r);
        if (g->o->run.json)
            print_json(g, r);
        else
            print_text(g, r);
        request_close(r);
    }
}

static void count_finished(struct generate *g, const struct request *r)
{
    g->n_finished++;
    g->n_failed += r->finish == FINISH_ERROR;
    g->n_prompt_tokens += r->prompt.n;
}

static void on_progress(void *context, struct request *r)
{
    struct generate *g = context;
    g->n_output_tokens++;
    if (g->first_token == 0)
        g->first_token = seconds_now();
    if (g->streams && r->released > g->streamed) {
        write_out(g, r->text.data + g->streamed, r->released - g->streamed);
        g->streamed = r->released;
    }
    if (r->finish != FINISH_NONE)
        count_finished(g, r);
}

int generate_start(struct generate *g, const struct limits *l, struct err *e)
{
    struct guess_rules guesses;
    if (draft_rules(&guesses, &g->o->run, e) != 0)
        return -1;
    struct scheduler_setup setup = {
        .limits = *l,
        .guesses = guesses,
        .tokenizer = g->texts->tokenizer,
        .lexicon = &g->texts->lexicon,
        .prefix_caching = !g->o->run.no_prefix_caching,
        .rope_changes_at = g->texts->rope_changes_at,
        .on_progress = on_progress,
        .context = g,
    };
    memcpy(setup.source, g->source, sizeof setup.source);
    if (scheduler_open(&g->scheduler, &setup, e) != 0)
        return -1;
    for (int i = 0; i < g->n; i++) {
        struct request *r = &g->request[i];
        int64_t length = (int64_t)r->prompt.n + g->rules.max_tokens;
        if (r->finish == FINISH_NONE && length > scheduler_max_len(&g->scheduler)) {
            ERR(&r->error, ERR_MEMORY, "%zu prompt tokens + --max-tokens %d = %lld, the KV cache holds %d", r->prompt.n,
                g->rules.max_tokens, (long long)length, scheduler_max_len(&g->scheduler));
            r->finish = FINISH_ERROR;
        }
        if (r->finish == FINISH_ERROR)
            count_finished(g, r);
        else if (scheduler_add(&g->scheduler, r, seconds_now(), e) != 0)
            return -1;
    }
    if (g->streams) {
        open_line_guard(STDOUT_FILENO);
        print_prompt(g, &g->request[0]);
    } else {
        progress_open(&g->progress, (enum progress_mode)g->o->run.progress, "generating", "prompts", (uint64_t)g->n);
    }
    print_finished(g);
    return 0;
}

int generate_next(void *context, struct plan *plan, struct err *e)
{
    struct generate *g = context;
    if (g->output_error.code != ERR_NONE) /* of what was printed before the first step */
        return ERR(e, g->output_error.code, "%s", g->output_error.text);
    if (scheduler_busy(&g->scheduler))
        scheduler_plan(&g->scheduler, plan, seconds_now());
    else
        plan->kind = PLAN_STOP;
    return 0;
}

void generate_masks(void *context, struct plan *plan)
{
    scheduler_masks(&((struct generate *)context)->scheduler, plan);
}

int generate_accept(void *context, const struct step_result *result, struct err *e)
{
    struct generate *g = context;
    char note[64];
    if (scheduler_accept(&g->scheduler, result, seconds_now(), e) != 0)
        return -1;
    print_finished(g);
    if (g->output_error.code != ERR_NONE)
        return ERR(e, g->output_error.code, "%s", g->output_error.text);
    (void)snprintf(note, sizeof note, "%llu tokens", (unsigned long long)g->n_output_tokens);
    progress_update(&g->progress, (uint64_t)g->n_finished, note);
    return 0;
}

void generate_report(void *context, const struct rank_report *report)
{
    struct generate *g = context;
    const struct rank_stats *mine = &report->total[0];
    int slowest = rank_stats_slowest(report->total, report->n_ranks);
    size_t bytes = sizeof g->ranks;
    g->joules = rank_stats_joules(report->total, report->n_ranks);
    g->joules_integrated = mine->joules_integrated;
    if (mine->n_timed == 0)
        return;
    int n = snprintf(g->ranks, bytes, "%llu steps, %.3f ms each on rank 0", (unsigned long long)mine->n_steps,
                     1e3 * rank_stats_step(mine));
    if (mine->n_timed < mine->n_steps)
        n += snprintf(g->ranks + n, bytes - (size_t)n, " (%llu of them timed)", (unsigned long long)mine->n_timed);
    if (slowest >= 0)
        (void)snprintf(g->ranks + n, bytes - (size_t)n,
                       ", %.3f ms of it in all-reduces; rank %d on %.64s computes longest, %.3f ms",
                       1e3 * rank_stats_all_reduce(mine), slowest, report->total[slowest].host,
                       1e3 * rank_stats_compute(&report->total[slowest]));
}

static void report_drafts(const struct scheduler_stats *s)
{
    uint64_t n_accepted = 0;
    for (int i = 0; i < DRAFTS_MAX; i++)
        n_accepted += s->n_accepted[i];
    if (s->n_drafts > 0)
        log_info("%llu of %llu drafts accepted in %llu steps of a sequence, which got %.2f tokens each",
                 (unsigned long long)n_accepted, (unsigned long long)s->n_draft_tokens, (unsigned long long)s->n_drafts,
                 1 + (double)n_accepted / (double)s->n_drafts);
}

int generate_status(struct generate *g, struct err *e)
{
    /* Some file systems report a full disk or a quota only now. */
    if (g->out != NULL && g->out != stdout && fclose(g->out) != 0)
        ERR(e, ERR_IO, "%s: cannot write: %s", output_name(g), strerror(errno));
    g->out = NULL;
    double seconds = seconds_now() - g->first_token;
    if (g->n_output_tokens > 0)
        log_info("%llu prompt and %llu output tokens; first token %.3f s after the start, then %.1f tokens/s",
                 (unsigned long long)g->n_prompt_tokens, (unsigned long long)g->n_output_tokens,
                 g->first_token - g->started, (double)g->n_output_tokens / (seconds > 0 ? seconds : 1));
    if (g->ranks[0] != '\0')
        log_info("%s", g->ranks);
    if (!isnan(g->joules) && g->n_output_tokens > 0)
        log_info("energy: %.1f J on all devices, %.3f J per output token%s", g->joules,
                 g->joules / (double)g->n_output_tokens, g->joules_integrated ? ", integrated from their power" : "");
    const struct scheduler_stats stats = scheduler_stats(&g->scheduler);
    log_info("%llu sequences preempted; %llu of %llu prompt tokens found in the prefix cache",
             (unsigned long long)stats.n_preemptions, (unsigned long long)stats.prefix_hits,
             (unsigned long long)stats.prefix_queries);
    report_drafts(&stats);
    return g->n_failed > 0 ? ERR_REQUEST : ERR_NONE;
}

void generate_close(struct generate *g)
{
    progress_close(&g->progress);
    if (g->out != NULL && g->out != stdout)
        (void)fclose(g->out); /* left open by a failure that has been reported */
    for (int i = 0; g->request != NULL && i < g->n; i++)
        request_close(&g->request[i]);
    free(g->request);
    prompts_free(&g->prompts);
    scheduler_close(&g->scheduler);
    generation_rules_close(&g->rules);
    memset(g, 0, sizeof *g);
}
