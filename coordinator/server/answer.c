/* coordinator/server/answer.c - replies: the outcome of a task, in the structs of protocol/reply.h. See server.h. */
#include "base/clock.h"
#include "coordinator/server/server.h"
#include "coordinator/tasks/finished.h"
#include "protocol/reply_said.h"

#include <stdlib.h>
#include <string.h>

#define SHORT_BYTES 1024 /* shorter replies are also sent to a client that reads too slowly */

static const char *id_of(const struct task *task)
{
    return !task->ticket.unread && task->request_id[0] != '\0' ? task->request_id : NULL;
}

/* Out of memory for a reply: sends a minimal one, since the client must get an answer. */
static const char no_memory[] =
    "{\"status\":\"error\",\"code\":500,\"error\":{\"field\":null,\"message\":\"out of host memory\"}}";

static void send_text(struct server *s, struct task *task, char *text, size_t bytes, bool tokens)
{
    if (task->ticket.client == NULL) {
        free(text);
        return;
    }
    if (text == NULL) {
        text = strdup(no_memory);
        bytes = sizeof no_memory - 1;
    }
    s->metrics.bytes_sent += bytes;
    clients_send(
        &s->clients, &s->transport, task->ticket.client,
        (struct outgoing){
            .text = text, .bytes = bytes, .delimiter = task->delimiter, .task = task->number, .tokens = tokens});
}

static const char *name_of(const struct server *s, const struct task *task)
{
    return task->served != NULL ? task->served->model.name : s->setup.name;
}

/* Ends a stream that has begun with a final event. The task may belong to the main thread, so its work is not read. */
static char *error_text(struct server *s, struct task *task, const struct protocol_error *error, size_t *bytes)
{
    const struct reply reply = {.request_id = id_of(task), .model = name_of(s, task), .error = error};
    bool begun = task->ticket.submitted && task->message.generate.stream;
    return begun ? reply_final(&reply, task->ticket.n_events++, bytes) : reply_error(id_of(task), error, bytes);
}

/* A reply that does not fit into a slow client's backlog is replaced by a short error: none is lost silently. */
void answer_text(struct server *s, struct task *task, char *text, size_t bytes)
{
    struct protocol_error slow = {0};
    if (!task->ticket.answered && task->ticket.client != NULL && bytes > SHORT_BYTES &&
        server_too_slow(s, task->ticket.client, &slow)) {
        free(text);
        task->error = slow;
        s->metrics.n_slow_clients++;
        text = error_text(s, task, &slow, &bytes);
    }
    if (task->ticket.answered)
        free(text);
    else
        send_text(s, task, text, bytes, false);
    task->ticket.answered = true;
}

void answer_error(struct server *s, struct task *task, const struct protocol_error *error)
{
    size_t bytes = 0;
    char *text = error_text(s, task, error, &bytes);
    answer_text(s, task, text, bytes);
}

void answer_health(struct server *s, struct task *task)
{
    const struct scheduler_stats stats = replicas_stats(&s->replicas);
    const struct reply_health h = {.state = s->state == SERVER_LOADING ? "loading"
                                            : s->state == SERVER_READY ? "ready"
                                                                       : "draining",
                                   .model = s->setup.name,
                                   .ranks = s->setup.n_ranks,
                                   .n_replicas = s->setup.n_replicas,
                                   .running = stats.n_running,
                                   .waiting = stats.n_waiting + s->turns[TURN_REPLICA].all.n_sequences,
                                   .kv_usage = scheduler_kv_usage(&stats),
                                   .uptime_s = seconds_now() - s->metrics.started};
    size_t bytes = 0;
    char *text = reply_health(id_of(task), &h, &bytes);
    answer_text(s, task, text, bytes);
}

void answer_metrics(struct server *s, struct task *task)
{
    struct text_buffer text = {0};
    struct err e = {0};
    size_t bytes = 0;
    char *reply =
        server_write_metrics(s, &text, &e) == 0 ? reply_metrics(id_of(task), text.data, text.bytes, &bytes) : NULL;
    answer_text(s, task, reply, bytes);
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

void answer_models(struct server *s, struct task *task)
{
    const struct models *m = &s->models;
    struct reply_model *list = calloc((size_t)m->n, sizeof *list);
    size_t bytes = 0;
    for (int i = 0; list != NULL && i < m->n; i++)
        list[i] = describe_model(s, i);
    char *text = list != NULL ? reply_models(id_of(task), list, m->n, s->setup.o->max_message_bytes, &bytes) : NULL;
    free(list);
    answer_text(s, task, text, bytes);
}

void answer_model(struct server *s, struct task *task, int model)
{
    const struct reply_model r = describe_model(s, model);
    size_t bytes = 0;
    char *text = reply_model(id_of(task), task->message.op, &r, &bytes);
    answer_text(s, task, text, bytes);
}

void answer_delta(struct server *s, const struct delta *p)
{
    struct task *task = p->task;
    const struct protocol_generate *g = &task->message.generate;
    int index = p->prompt_index * task->n_choices + p->choice;
    if (task->ticket.answered || task->ticket.client == NULL)
        return;
    struct reply_choice choice = {.index = index,
                                  .text = p->text,
                                  .bytes = p->bytes,
                                  .token_id = p->id,
                                  .n_tokens = p->n_ids,
                                  .finish = p->finish,
                                  .error = p->error,
                                  .stop_text = task_stop_text(task, p->stop_text),
                                  .whole = p->n_ids > 0 && task_is_whole(task, p->id[p->n_ids - 1]),
                                  .logprobs = p->logprobs,
                                  .n_top = g->rules.sampling.n_top};
    if (task->reader != NULL) {
        choice.said = reply_saying(task->reader[index], task->calls, task_salt(task), index, p->text, p->bytes,
                                   p->finish != FINISH_NONE);
        choice.calls = calls_count(task->reader[index]) > 0;
    }
    if (task->echo != NULL && !task->ticket.echoed[index]) {
        choice.before = task->echo[p->prompt_index].text;
        choice.n_before = task->echo[p->prompt_index].bytes;
        task->ticket.echoed[index] = true;
    }
    const struct reply reply = {.request_id = id_of(task),
                                .model = name_of(s, task),
                                .tokenizer = task->served->tokenizer,
                                .n_choices = 1,
                                .choice = &choice,
                                .prompt_tokens = task->ticket.n_events == 0 ? task->prompt_tokens : 0};
    size_t bytes = 0;
    bool good = task->reader == NULL || choice.said != NULL;
    char *text = good ? reply_tokens(&reply, task->ticket.n_events++, &bytes) : NULL;
    json_decref(choice.said);
    send_text(s, task, text, bytes, true);
}

static int64_t longest_choice(const struct task *task)
{
    size_t longest = 0;
    for (int i = 0; i < task->n_prompts; i++)
        for (int c = 0; c < task->n_choices && task->choices[i].choice != NULL && task->choices[i].choice[c] != NULL;
             c++)
            longest = task->choices[i].choice[c]->output.n > longest ? task->choices[i].choice[c]->output.n : longest;
    return (int64_t)longest;
}

static void note_outcome(struct outcome *o, const struct task *task, const struct finished *f)
{
    int64_t choices = (int64_t)task->n_prompts * task->n_choices;
    *o = (struct outcome){.code = task->error.code != 0 ? task->error.code : PROTOCOL_OK,
                          .time = f->split,
                          .first_token = f->times.first_token > 0 ? f->times.first_token - task->arrived : 0,
                          .n_prompt = f->usage.prompt_tokens,
                          .n_output = f->usage.completion_tokens,
                          .n_cached = f->usage.cached_tokens,
                          .n_longest = longest_choice(task)};
    if (choices == 1 && o->n_output > 1)
        o->per_token = f->split.decode / (double)(o->n_output - 1);
}

void answer_generate(struct server *s, struct task *task, struct outcome *o)
{
    struct finished f;
    size_t bytes = 0;
    finished_measure(&f, task, seconds_now());
    finished_judge(task);
    if (task->reply != NULL) { /* a worker has written it */
        answer_text(s, task, task->reply, task->reply_bytes);
        task->reply = NULL;
    } else if (!task->ticket.answered && task->ticket.client != NULL) {
        char *text = finished_reply(&f, task, task->served->tokenizer, task->served->model.name, &bytes);
        answer_text(s, task, text, bytes);
    }
    note_outcome(o, task, &f);
    finished_close(&f);
}
