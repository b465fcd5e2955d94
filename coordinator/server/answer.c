/* coordinator/server/answer.c - replies: the outcome of a task, in the structs of protocol/reply.h. See server.h. */
#include "base/clock.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/finished.h"
#include "protocol/reply_said.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES 1024 /* shorter replies are also sent to a client that reads too slowly */

static const char *id_of(const struct task *j)
{
    return !j->ticket.unread && j->request_id[0] != '\0' ? j->request_id : NULL;
}

/* Out of memory for a reply: sends a minimal one, since the client must get an answer. */
static const char no_memory[] =
    "{\"status\":\"error\",\"code\":500,\"error\":{\"field\":null,\"message\":\"out of host memory\"}}";

static void send_text(struct server *s, struct task *j, char *text, size_t bytes, bool tokens)
{
    if (j->ticket.client == NULL) {
        free(text);
        return;
    }
    if (text == NULL) {
        text = strdup(no_memory);
        bytes = sizeof no_memory - 1;
    }
    s->metrics.bytes_sent += bytes;
    clients_send(&s->clients, &s->transport, j->ticket.client,
                 (struct outgoing){
                     .text = text, .bytes = bytes, .delimiter = j->delimiter, .task = j->number, .tokens = tokens});
}

static const char *name_of(const struct server *s, const struct task *j)
{
    return j->served != NULL ? j->served->model.name : s->setup.name;
}

/* Ends a stream that has begun with a final event. The task may belong to the main thread, so its work is not read. */
static char *error_text(struct server *s, struct task *j, const struct protocol_error *error, size_t *bytes)
{
    const struct reply reply = {.request_id = id_of(j), .model = name_of(s, j), .error = error};
    bool begun = j->ticket.submitted && j->message.generate.stream;
    return begun ? reply_final(&reply, j->ticket.n_events++, bytes) : reply_error(id_of(j), error, bytes);
}

/* A reply that does not fit into a slow client's backlog is replaced by a short error: none is lost silently. */
void answer_text(struct server *s, struct task *j, char *text, size_t bytes)
{
    struct protocol_error slow = {0};
    if (!j->ticket.answered && j->ticket.client != NULL && bytes > SHORT_BYTES &&
        server_too_slow(s, j->ticket.client, &slow)) {
        free(text);
        j->error = slow;
        s->metrics.n_slow_clients++;
        text = error_text(s, j, &slow, &bytes);
    }
    if (j->ticket.answered)
        free(text);
    else
        send_text(s, j, text, bytes, false);
    j->ticket.answered = true;
}

void answer_error(struct server *s, struct task *j, const struct protocol_error *error)
{
    size_t bytes = 0;
    char *text = error_text(s, j, error, &bytes);
    answer_text(s, j, text, bytes);
}

void answer_health(struct server *s, struct task *j)
{
    const struct scheduler_stats stats = replicas_stats(&s->replicas);
    const struct reply_health h = {.state = s->state == SERVER_LOADING ? "loading"
                                            : s->state == SERVER_READY ? "ready"
                                                                       : "draining",
                                   .model = s->setup.name,
                                   .ranks = s->setup.n_ranks,
                                   .n_replicas = s->setup.n_replicas,
                                   .running = stats.n_running,
                                   .waiting = stats.n_waiting + s->turns[TURN_REPLICA].n_sequences,
                                   .kv_usage = scheduler_kv_usage(&stats),
                                   .uptime_s = seconds_now() - s->metrics.started};
    size_t bytes = 0;
    char *text = reply_health(id_of(j), &h, &bytes);
    answer_text(s, j, text, bytes);
}

void answer_metrics(struct server *s, struct task *j)
{
    struct text_buffer text = {0};
    struct err e = {0};
    size_t bytes = 0;
    char *reply =
        server_write_metrics(s, &text, &e) == 0 ? reply_metrics(id_of(j), text.data, text.bytes, &bytes) : NULL;
    answer_text(s, j, reply, bytes);
    text_free(&text);
}

static struct reply_model describe_model(const struct server *s, int i)
{
    const struct models *m = &s->models;
    const struct served *served = models_served(m, i);
    const struct placed d = placement_look(&m->placement, i);
    bool many = models_are_many(m);
    struct reply_model r = {.name = m->entry[i].name,
                            .ranks = s->setup.n_ranks,
                            .n_replicas = s->setup.n_replicas,
                            .max_model_len = replicas_max_len(&s->replicas, i),
                            .state = deploy_state_name(d.state),
                            .n_ready = many ? d.n_ready : -1,
                            .bytes = many ? d.bytes : -1,
                            .pinned = d.pinned,
                            .users = d.n_users,
                            .waiters = d.n_waiters,
                            .idle_s = many && d.last_used > 0 ? seconds_now() - d.last_used : -1,
                            .has_freed = m->entry[i].counts.unloads > 0,
                            .free_before = m->entry[i].counts.free_before,
                            .freed = m->entry[i].counts.freed};
    if (d.state == DEPLOY_FAILED)
        r.why = m->entry[i].why.message;
    if (served == NULL)
        return r;
    r.family = served->family;
    r.dtype = served->dtype;
    r.variant = served->variant;
    r.vocab = served->model.vocab;
    r.chat_template = served->chat != NULL ? chat_template_name(served->chat) : NULL;
    return r;
}

void answer_models(struct server *s, struct task *j)
{
    const struct models *m = &s->models;
    struct reply_model *list = calloc((size_t)m->n, sizeof *list);
    size_t bytes = 0;
    for (int i = 0; list != NULL && i < m->n; i++)
        list[i] = describe_model(s, i);
    char *text = list != NULL ? reply_models(id_of(j), list, m->n, s->setup.o->max_message_bytes, &bytes) : NULL;
    free(list);
    answer_text(s, j, text, bytes);
}

void answer_model(struct server *s, struct task *j, int model)
{
    const struct reply_model r = describe_model(s, model);
    size_t bytes = 0;
    char *text = reply_model(id_of(j), j->message.op, &r, &bytes);
    answer_text(s, j, text, bytes);
}

void answer_delta(struct server *s, const struct delta *p)
{
    struct task *j = p->task;
    const struct protocol_generate *g = &j->message.generate;
    int index = p->prompt_index * j->n_choices + p->choice;
    if (j->ticket.answered || j->ticket.client == NULL)
        return;
    struct reply_choice choice = {.index = index,
                                  .text = p->text,
                                  .bytes = p->bytes,
                                  .token_id = p->id,
                                  .n_tokens = p->n_ids,
                                  .finish = p->finish,
                                  .error = p->error,
                                  .stop_text = task_stop_text(j, p->stop_text),
                                  .whole = p->n_ids > 0 && task_is_whole(j, p->id[p->n_ids - 1]),
                                  .logprobs = p->logprobs,
                                  .n_top = g->rules.sampling.n_top};
    if (j->reader != NULL) {
        choice.said =
            reply_saying(j->reader[index], j->calls, task_salt(j), index, p->text, p->bytes, p->finish != FINISH_NONE);
        choice.calls = calls_count(j->reader[index]) > 0;
    }
    if (j->echo != NULL && !j->ticket.echoed[index]) {
        choice.before = j->echo[p->prompt_index].text;
        choice.n_before = j->echo[p->prompt_index].bytes;
        j->ticket.echoed[index] = true;
    }
    const struct reply reply = {.request_id = id_of(j),
                                .model = name_of(s, j),
                                .tokenizer = j->served->tokenizer,
                                .n_choices = 1,
                                .choice = &choice};
    size_t bytes = 0;
    bool good = j->reader == NULL || choice.said != NULL;
    char *text = good ? reply_tokens(&reply, j->ticket.n_events++, &bytes) : NULL;
    json_decref(choice.said);
    send_text(s, j, text, bytes, true);
}

static int64_t longest_choice(const struct task *j)
{
    size_t longest = 0;
    for (int i = 0; i < j->n_prompts; i++)
        for (int c = 0; c < j->n_choices && j->choices[i].choice != NULL && j->choices[i].choice[c] != NULL; c++)
            longest = j->choices[i].choice[c]->output.n > longest ? j->choices[i].choice[c]->output.n : longest;
    return (int64_t)longest;
}

static void note_outcome(struct outcome *o, const struct task *j, const struct finished *f)
{
    int64_t choices = (int64_t)j->n_prompts * j->n_choices;
    *o = (struct outcome){.code = j->error.code != 0 ? j->error.code : PROTOCOL_OK,
                          .time = f->split,
                          .first_token = f->times.first_token > 0 ? f->times.first_token - j->arrived : 0,
                          .n_prompt = f->usage.prompt_tokens,
                          .n_output = f->usage.completion_tokens,
                          .n_cached = f->usage.cached_tokens,
                          .n_longest = longest_choice(j)};
    if (choices == 1 && o->n_output > 1)
        o->per_token = f->split.decode / (double)(o->n_output - 1);
}

void answer_generate(struct server *s, struct task *j, struct outcome *o)
{
    struct finished f;
    size_t bytes = 0;
    finished_measure(&f, j, seconds_now());
    finished_judge(j);
    if (j->reply != NULL) { /* a worker has written it */
        answer_text(s, j, j->reply, j->reply_bytes);
        j->reply = NULL;
    } else if (!j->ticket.answered && j->ticket.client != NULL) {
        char *text = finished_reply(&f, j, j->served->tokenizer, j->served->model.name, &bytes);
        answer_text(s, j, text, bytes);
    }
    note_outcome(o, j, &f);
    finished_close(&f);
}
