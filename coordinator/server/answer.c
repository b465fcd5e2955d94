/* coordinator/server/answer.c - replies: what a job came to, in the structs of coordinator/reply.h. See server.h. */
#include "base/clock.h"
#include "coordinator/server/server.h"

#include <stdlib.h>
#include <string.h>

static const char *id_of(const struct job *j)
{
    return !j->unread && j->request_id[0] != '\0' ? j->request_id : NULL;
}

/* Out of memory for a reply: the client has to hear something. */
static const char no_memory[] =
    "{\"status\":\"error\",\"code\":500,\"error\":{\"field\":null,\"message\":\"out of host memory\"}}";

static void send_text(struct server *s, struct job *j, char *text, size_t bytes, bool tokens)
{
    if (j->client == NULL) {
        free(text);
        return;
    }
    if (text == NULL) {
        text = strdup(no_memory);
        bytes = sizeof no_memory - 1;
    }
    s->metrics.bytes_sent += bytes;
    clients_send(
        &s->clients, &s->transport, j->client,
        (struct outgoing){.text = text, .bytes = bytes, .delimiter = j->delimiter, .job = j->number, .tokens = tokens});
}

void answer_text(struct server *s, struct job *j, char *text, size_t bytes)
{
    if (j->answered)
        free(text);
    else
        send_text(s, j, text, bytes, false);
    j->answered = true;
}

/* The job may be the main thread's: its groups are not looked at. */
void answer_error(struct server *s, struct job *j, const struct protocol_error *error)
{
    size_t bytes = 0;
    const struct reply reply = {.request_id = id_of(j), .model = s->setup.model.name, .error = error};
    bool begun = j->in_engine && j->message.generate.stream;
    char *text = begun ? reply_final(&reply, j->n_events++, &bytes) : reply_error(id_of(j), error, &bytes);
    answer_text(s, j, text, bytes);
}

void answer_health(struct server *s, struct job *j)
{
    const struct scheduler_stats stats = engines_stats(&s->engines);
    const struct reply_health h = {.state = s->state == SERVER_LOADING ? "loading"
                                            : s->state == SERVER_READY ? "ready"
                                                                       : "draining",
                                   .model = s->setup.model.name,
                                   .ranks = s->setup.n_ranks,
                                   .groups = s->setup.n_groups,
                                   .running = stats.n_running,
                                   .waiting = stats.n_waiting,
                                   .kv_usage = stats.n_blocks > 0 ? (double)stats.n_blocks_used / stats.n_blocks : 0,
                                   .uptime_s = seconds_now() - s->metrics.started};
    size_t bytes = 0;
    char *text = reply_health(id_of(j), &h, &bytes);
    answer_text(s, j, text, bytes);
}

void answer_metrics(struct server *s, struct job *j)
{
    struct text_buffer text = {0};
    struct err e = {0};
    size_t bytes = 0;
    char *reply =
        metrics_write(&s->metrics, &text, &e) == 0 ? reply_metrics(id_of(j), text.data, text.bytes, &bytes) : NULL;
    answer_text(s, j, reply, bytes);
    text_free(&text);
}

void answer_models(struct server *s, struct job *j)
{
    const struct server_setup *setup = &s->setup;
    const struct reply_model m = {.name = setup->model.name,
                                  .family = setup->family,
                                  .dtype = setup->dtype,
                                  .ranks = setup->n_ranks,
                                  .vocab = setup->model.vocab,
                                  .groups = setup->n_groups,
                                  .max_model_len = engines_max_len(&s->engines),
                                  .chat_template = setup->chat != NULL ? chat_template_name(setup->chat) : NULL,
                                  .max_message_bytes = setup->o->max_message_bytes};
    size_t bytes = 0;
    char *text = reply_models(id_of(j), &m, &bytes);
    answer_text(s, j, text, bytes);
}

/* The text of prompt i, for echo; malloc'ed. */
static char *prompt_text(const struct server *s, const struct job *j, int i, size_t *bytes)
{
    const struct protocol_generate *g = &j->message.generate;
    struct err e = {0};
    char *text = NULL;
    if (g->prompt != NULL && g->prompt[i].text != NULL) {
        *bytes = g->prompt[i].bytes;
        text = malloc(*bytes + 1);
        if (text != NULL)
            memcpy(text, g->prompt[i].text, *bytes + 1);
        return text;
    }
    const struct token_list *ids = &j->group[i].prompt;
    if (tokenizer_decode(s->setup.tokenizer, ids->id, ids->n, g->rules.skip_special, &text, bytes, &e) != 0)
        return NULL;
    return text;
}

/* The prompt's text before the output's; malloc'ed, NULL: out of memory. */
static char *with_prompt(const struct server *s, const struct job *j, int i, const char *output, size_t *bytes)
{
    size_t before = 0;
    char *text = prompt_text(s, j, i, &before), *both = text != NULL ? realloc(text, before + *bytes + 1) : NULL;
    if (both == NULL) {
        free(text);
        return NULL;
    }
    memcpy(both + before, output, *bytes);
    *bytes += before;
    both[*bytes] = '\0';
    return both;
}

void answer_piece(struct server *s, const struct piece *p)
{
    struct job *j = p->job;
    const struct protocol_generate *g = &j->message.generate;
    int index = p->group * j->n_choices + p->choice;
    if (j->answered || j->client == NULL)
        return;
    struct reply_choice choice = {.index = index,
                                  .text = p->text,
                                  .bytes = p->bytes,
                                  .token_id = p->id,
                                  .n_tokens = p->n_ids,
                                  .logprobs = p->logprobs,
                                  .n_top = g->rules.sampling.n_top};
    char *both = NULL;
    if (g->echo && !j->echoed[index]) {
        both = with_prompt(s, j, p->group, p->text, &choice.bytes);
        choice.text = both != NULL ? both : p->text;
        j->echoed[index] = true;
    }
    const struct reply reply = {.request_id = id_of(j),
                                .model = s->setup.model.name,
                                .tokenizer = s->setup.tokenizer,
                                .n_choices = 1,
                                .choice = &choice};
    size_t bytes = 0;
    char *text = reply_tokens(&reply, j->n_events++, &bytes);
    free(both);
    send_text(s, j, text, bytes, true);
}

/* Over all groups: the first of each. 0: never. */
static struct request_times times_of(const struct job *j)
{
    struct request_times t = {0};
    for (int i = 0; i < j->n_groups; i++) {
        const struct request_times *one = &j->group[i].times;
        const double at[3] = {one->arrived, one->scheduled, one->first_token};
        double *const to[3] = {&t.arrived, &t.scheduled, &t.first_token};
        for (int k = 0; k < 3; k++)
            if (at[k] > 0 && (*to[k] == 0 || at[k] < *to[k]))
                *to[k] = at[k];
        t.finished = one->finished > t.finished ? one->finished : t.finished;
    }
    return t;
}

static struct time_split split_time(const struct job *j, const struct request_times *t, double now)
{
    struct time_split split = {.total = now - j->arrived};
    double end = t->finished > 0 ? t->finished : now;
    double queued_to = t->scheduled > 0 ? t->scheduled : end;
    if (t->arrived > 0)
        split.queue = queued_to - t->arrived;
    if (t->scheduled > 0)
        split.prefill = (t->first_token > 0 ? t->first_token : end) - t->scheduled;
    if (t->first_token > 0)
        split.decode = end - t->first_token;
    split.overhead = split.total - split.queue - split.prefill - split.decode;
    return split;
}

/* How the job as a whole ended. An error that the I/O thread has set (a cancellation's reason) goes first. */
static void judge(struct job *j)
{
    for (int i = 0; i < j->n_groups && j->error.code == 0; i++) {
        enum finish_reason finish = j->group[i].finish;
        if (finish == FINISH_TIMEOUT)
            (void)protocol_fail(&j->error, PROTOCOL_TIMEOUT, "timeout_ms", "%lld ms have passed",
                                (long long)j->message.generate.timeout_ms);
        else if (finish == FINISH_CANCELLED)
            (void)protocol_fail(&j->error, PROTOCOL_CANCELLED, "", "cancelled");
        else if (finish != FINISH_STOP && finish != FINISH_LENGTH)
            (void)protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "the request failed in the engine");
    }
}

/* Returns the text if it was made for this (echo); it is freed after the reply. */
static char *fill_choice(struct server *s, const struct job *j, int i, int c, struct reply_choice *choice)
{
    const struct protocol_generate *g = &j->message.generate;
    const struct request *r = j->group[i].choice != NULL ? j->group[i].choice[c] : NULL;
    *choice = (struct reply_choice){.index = i * j->n_choices + c, .text = "", .finish = j->group[i].finish};
    if (r == NULL)
        return NULL;
    choice->finish = r->finish;
    choice->text = r->text.data != NULL ? r->text.data : "";
    choice->bytes = r->released;
    choice->token_id = r->output.id;
    choice->n_tokens = r->output.n;
    choice->logprobs = g->rules.want_logprobs ? r->logprobs : NULL;
    choice->n_top = g->rules.sampling.n_top;
    const struct group *group = &j->group[i];
    choice->has_score = group->score != NULL;
    choice->score = choice->has_score ? group->score[c] : 0;
    choice->prompt_logprobs = group->prompt_logprobs;
    choice->prompt_id = group->prompt.id;
    choice->n_prompt = group->prompt.n;
    choice->n_prompt_top = g->rules.sampling.n_prompt_top;
    char *both = g->echo && !g->stream ? with_prompt(s, j, i, choice->text, &choice->bytes) : NULL;
    if (both != NULL)
        choice->text = both;
    return both;
}

static struct reply_usage usage_of(const struct job *j)
{
    struct reply_usage u = {0, 0, 0};
    for (int i = 0; i < j->n_groups; i++) {
        const struct group *g = &j->group[i];
        u.prompt_tokens += (int64_t)g->prompt.n;
        u.cached_tokens += g->n_cached;
        for (int c = 0; c < j->n_choices && g->choice != NULL && g->choice[c] != NULL; c++)
            u.completion_tokens += (int64_t)g->choice[c]->output.n;
    }
    return u;
}

static void note_outcome(struct outcome *o, const struct job *j, const struct request_times *t,
                         const struct time_split *split, const struct reply_usage *usage)
{
    int64_t choices = (int64_t)j->n_groups * j->n_choices;
    *o = (struct outcome){.code = j->error.code != 0 ? j->error.code : PROTOCOL_OK,
                          .time = *split,
                          .first_token = t->first_token > 0 ? t->first_token - j->arrived : 0,
                          .n_prompt = usage->prompt_tokens,
                          .n_output = usage->completion_tokens,
                          .n_cached = usage->cached_tokens};
    if (choices == 1 && o->n_output > 1)
        o->per_token = split->decode / (double)(o->n_output - 1);
}

static void send_generate(struct server *s, struct job *j, const struct reply_usage *usage,
                          const struct time_split *split)
{
    size_t n = (size_t)j->n_groups * (size_t)j->n_choices, bytes = 0;
    struct reply_choice *choice = calloc(n + 1, sizeof *choice);
    char **made = calloc(n + 1, sizeof *made), *text = NULL;
    const struct reply_timing timing = {1e3 * split->queue, 1e3 * split->prefill, 1e3 * split->decode,
                                        1e3 * split->total};
    const struct reply reply = {.request_id = id_of(j),
                                .model = s->setup.model.name,
                                .tokenizer = s->setup.tokenizer,
                                .n_choices = (int)n,
                                .choice = choice,
                                .usage = usage,
                                .timing = &timing,
                                .error = &j->error,
                                .seed = j->seed};
    if (choice != NULL && made != NULL) {
        for (size_t i = 0; i < n; i++)
            made[i] = fill_choice(s, j, (int)i / j->n_choices, (int)i % j->n_choices, &choice[i]);
        text = j->message.generate.stream ? reply_final(&reply, j->n_events++, &bytes) : reply_generate(&reply, &bytes);
        for (size_t i = 0; i < n; i++)
            free(made[i]);
    }
    free(choice);
    free(made);
    answer_text(s, j, text, bytes);
}

void answer_generate(struct server *s, struct job *j, struct outcome *o)
{
    const struct request_times t = times_of(j);
    const struct time_split split = split_time(j, &t, seconds_now());
    const struct reply_usage usage = usage_of(j);
    judge(j);
    note_outcome(o, j, &t, &split, &usage);
    if (!j->answered && j->client != NULL)
        send_generate(s, j, &usage, &split);
}
