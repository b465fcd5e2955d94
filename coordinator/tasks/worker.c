/* coordinator/tasks/worker.c - see worker.h. */
#include "coordinator/tasks/worker.h"
#include "base/clock.h"
#include "coordinator/tasks/encode.h"
#include "coordinator/tasks/finished.h"
#include "coordinator/tasks/mailbox.h"
#include "protocol/reply.h"
#include "text/calls/syntax.h"
#include "text/grammar/lexicon_keeper.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define TRIM_BYTES     ((size_t)1 << 20)
#define THOUGHT_TOKENS 16 /* tokens of a prompt's end, which may contain <think>, perhaps letter by letter */

/* Makes the grammar of the requested form, and the lexicon for it. */
static int make_form(struct task *task)
{
    const struct protocol_form *asked = &task->message.generate.form;
    struct err e = {0};
    if (asked->kind == 0 || task->form != NULL)
        return 0;
    if (form_open(&task->form, asked->kind, asked->value, &e) == 0 &&
        lexicon_keeper_get(task->served->lexicon, &e) != NULL)
        return 0;
    return protocol_fail(&task->error, protocol_blame(&e), asked->field, "%s", e.text);
}

/* The schema of an answer without calls; a new reference. NULL: any text, or calls are required. */
static json_t *schema_beside_calls(const struct protocol_form *f)
{
    if (f->kind == FORM_OBJECT)
        return json_pack("{s:s}", "type", "object");
    return f->kind == FORM_SCHEMA ? json_incref((json_t *)f->value) : NULL;
}

/* The calls that an answer has to consist of, unless it has its own form. */
static int make_calls(struct task *task, enum calls_format format)
{
    const struct protocol_generate *g = &task->message.generate;
    struct err e = {0};
    json_t *asked = calls_syntax(format, g->chat.tools, g->tools.only, g->tools.parallel && g->tools.only == NULL);
    json_t *other = schema_beside_calls(&g->form);
    if (other != NULL && json_object_set_new(asked, "or", other) != 0)
        ERR(&e, ERR_MEMORY, "out of host memory");
    if (asked == NULL)
        ERR(&e, ERR_MEMORY, "out of host memory");
    if (e.code == ERR_NONE && form_open(&task->form, FORM_CALLS, asked, &e) == 0)
        (void)lexicon_keeper_get(task->served->lexicon, &e);
    json_decref(asked);
    if (e.code == ERR_NONE)
        return 0;
    return protocol_fail(&task->error, protocol_blame(&e), "tools", "%s", e.text);
}

/* The position at which a chat's answer may contain reasoning. An answer in a given form begins with the form, whatever
 * the end of the prompt. */
static int find_thoughts(struct task *task)
{
    const struct protocol_generate *g = &task->message.generate;
    const struct token_list *ids = &task->ids[0];
    size_t n = ids->n < THOUGHT_TOKENS ? ids->n : THOUGHT_TOKENS, bytes;
    struct err e = {0};
    char *end;
    const struct protocol_turn *last = &g->turn[g->n_turns - 1];
    task->calls.hidden = g->hide_thoughts;
    task->calls.continues = g->chat.continue_last;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    if (!chat_template_thinks(task->served->chat, g->chat.tools != NULL) || task->calls.format == CALLS_HARMONY)
        return 0;
    if (tokenizer_decode(task->served->tokenizer, ids->id + ids->n - n, n, false, &end, &bytes, &e) != 0)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "messages", "%s", e.text);
    bool begun =
        calls_begins_thought(end, bytes) || (g->chat.continue_last && calls_in_thought(last->content, last->bytes));
    task->calls.thoughts = begun && g->form.kind == 0 ? THOUGHTS_BEGUN : THOUGHTS_MARKED;
    free(end);
    return 0;
}

/* Is a chat's answer parsed, and must it be a call? The tags may be special tokens, which are then part of the text. */
static int find_calls(struct task *task)
{
    struct protocol_generate *g = &task->message.generate;
    bool tools = g->chat.tools != NULL;
    if (g->n_turns == 0)
        return 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    enum calls_format format = chat_template_calls(task->served->chat, tools);
    if (tools && format == CALLS_NONE && g->tools.choice != TOOLS_UNSAID)
        return protocol_fail(&task->error, PROTOCOL_BAD_REQUEST, "tool_choice",
                             "the chat template of this model writes calls in no form that is known here: only "
                             "\"none\" is possible");
    task->calls.format = tools || format == CALLS_HARMONY ? format : CALLS_NONE;
    if (find_thoughts(task) != 0)
        return -1;
    g->rules.parsed = calls_any(task->calls);
    bool formed = g->form.kind == FORM_CALLS || (task->calls.format != CALLS_NONE && protocol_may_call(g));
    return formed && task->form == NULL ? make_calls(task, format) : 0;
}

static int encode_prompts(struct task *task)
{
    const struct served *v = task->served;
    const struct protocol_generate *g = &task->message.generate;
    int n = g->prompt != NULL ? g->n_prompts : 1;
    task->ids = calloc((size_t)n, sizeof *task->ids);
    if (task->ids == NULL)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
    for (task->n_ids = 0; task->n_ids < n;) {
        struct token_list *ids = &task->ids[task->n_ids];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
        if (encode_request(g, task->n_ids++, v->tokenizer, v->chat, v->model.vocab, v->bos, ids, &task->error) != 0)
            return -1;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): as above */
    if (encode_prediction(g, v->tokenizer, v->model.vocab, &task->prediction, &task->error) != 0)
        return -1;
    if (find_calls(task) != 0 || make_form(task) != 0)
        return -1;
    if (g->n_turns > 0)
        protocol_forget_chat(&task->message);
    return 0;
}

static int write_prompt(struct task *task, int i)
{
    const struct protocol_generate *g = &task->message.generate;
    const char *text = g->prompt[i].text;
    size_t bytes = g->prompt[i].bytes;
    struct err e = {0};
    char *made = NULL;
    if (text == NULL) {
        (void)tokenizer_decode(task->served->tokenizer, task->ids[i].id, task->ids[i].n, g->rules.skip_special, &made,
                               &bytes, &e);
        text = made;
    }
    if (text != NULL)
        task->echo[i].text = reply_characters(text, bytes, &task->echo[i].bytes);
    free(made);
    if (task->echo[i].text == NULL)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "%s",
                             e.code != ERR_NONE ? e.text : "out of host memory");
    return 0;
}

/* A stream's first events repeat the prompts, which may be megabytes: the I/O thread has no time to write them.
 * Prompts that are too long are refused when the task is prepared. */
static int write_echo(struct task *task, const struct worker_setup *s)
{
    const struct protocol_generate *g = &task->message.generate;
    int64_t bytes = 0;
    if (!g->stream || !g->echo || g->prompt == NULL)
        return 0;
    for (int i = 0; i < task->n_ids; i++)
        bytes += task_echo_bytes(task, i);
    if (bytes > s->max_reply)
        return 0;
    task->echo = calloc((size_t)task->n_ids, sizeof *task->echo);
    if (task->echo == NULL)
        return protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
    for (int i = 0; i < task->n_ids; i++)
        if (write_prompt(task, i) != 0)
            return -1;
    return 0;
}

/* The bytes of a list of ids as JSON, and of the texts of these tokens. */
static int64_t ids_bytes(const struct token_list *ids)
{
    int64_t sum = 2;
    for (size_t i = 0; i < ids->n; i++, sum += 2)
        for (int32_t rest = ids->id[i]; rest > 9; rest /= 10)
            sum++;
    return sum;
}

static int64_t texts_bytes(const struct token_list *ids, const struct tokenizer *t)
{
    int64_t sum = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t bytes = 0;
        const char *text = tokenizer_token_text(t, ids->id[i], &bytes);
        sum += 3 + (text != NULL ? task_text_bytes(text, bytes) : 0);
    }
    return sum;
}

static int check_reply(struct task *task, const char *field, size_t n, int64_t bytes, int64_t most)
{
    if (bytes <= most)
        return 0;
    return protocol_fail(&task->error, PROTOCOL_TOO_LARGE, field,
                         "the reply may take %lld bytes (%zu tokens), expected at most %lld (--max-reply-bytes)",
                         (long long)bytes, n, (long long)most);
}

static void detokenize(struct task *task, const struct worker_setup *s)
{
    const struct protocol_message *m = &task->message;
    struct err e = {0};
    char *text = NULL;
    size_t bytes = 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    if (check_reply(task, "token_ids", m->ids.n, texts_bytes(&m->ids, task->served->tokenizer), s->max_reply) != 0)
        return;
    if (tokenizer_decode(task->served->tokenizer, m->ids.id, m->ids.n, m->skip_special_tokens, &text, &bytes, &e) != 0)
        (void)protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "%s", e.text);
    else
        task->reply = reply_detokenize(m->request_id, text, bytes, &task->reply_bytes);
    free(text);
}

static void tokenize(struct task *task, const struct worker_setup *s)
{
    const struct protocol_message *m = &task->message;
    if (encode_prompts(task) != 0)
        return;
    const struct token_list *ids = &task->ids[0];
    int64_t bytes = ids_bytes(ids) + (m->generate.return_token_strings ? texts_bytes(ids, task->served->tokenizer) : 0);
    if (check_reply(task, m->generate.n_turns > 0 ? "messages" : "prompt", ids->n, bytes, s->max_reply) == 0)
        task->reply = reply_tokenize(m->request_id, task->ids[0].id, task->ids[0].n, task->served->tokenizer,
                                     m->generate.return_token_strings, task->max_len, &task->reply_bytes);
}

/* The reply contains the context's length, so it has to be known. */
static void work_on_tokens(struct task *task, const struct worker_setup *s)
{
    if (task->max_len == 0)
        return;
    if (task->message.op == PROTOCOL_TOKENIZE)
        tokenize(task, s);
    else
        detokenize(task, s);
    if (task->reply == NULL && task->error.code == 0)
        (void)protocol_fail(&task->error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static void write_reply(struct task *task)
{
    struct finished f;
    finished_measure(&f, task, seconds_now());
    finished_judge(task);
    task->reply = finished_reply(&f, task, task->served->tokenizer, task->served->model.name, &task->reply_bytes);
    finished_close(&f);
}

static void work_on(struct task *task, const struct worker_setup *s)
{
    if (task->ticket.writes) {
        write_reply(task);
        return;
    }
    if (!task->parsed)
        task_read(task);
    if (task->error.code != 0 || (task->served == NULL && protocol_needs_model(task->message.op)))
        return;
    if (!task->checked)
        task_check(task);
    if (task->error.code != 0)
        return;
    if (task->message.op == PROTOCOL_GENERATE)
        (void)(encode_prompts(task) == 0 && write_echo(task, s) == 0);
    else if (task->message.op == PROTOCOL_TOKENIZE || task->message.op == PROTOCOL_DETOKENIZE)
        work_on_tokens(task, s);
}

/* Megabytes of JSON are made of many small pieces of memory: they go back to the system now. */
static void work_and_tidy(struct task *task, const struct worker_setup *s)
{
    work_on(task, s);
    if (task->reply_bytes > TRIM_BYTES || task->message_bytes > TRIM_BYTES)
        (void)malloc_trim(0);
}

/* The worker's own address as a message ends it. */
static void *run_worker(void *context)
{
    struct worker *w = context;
    for (struct task *task; (task = mailbox_next(w->end[1], w)) != NULL;) {
        if (!atomic_load(&w->stopping) && !atomic_load(&task->abandoned))
            work_and_tidy(task, &w->setup);
        (void)mailbox_post(w->end[1], task);
    }
    return NULL;
}

int worker_open(struct worker *w, void *zmq_context, const char *name, const struct worker_setup *setup, struct err *e)
{
    memset(w, 0, sizeof *w);
    w->setup = *setup;
    if (mailbox_open(zmq_context, name, w->end, e) != 0)
        return -1;
    if (pthread_create(&w->thread, NULL, run_worker, w) != 0)
        return ERR(e, ERR_MEMORY, "cannot start a thread: %s", name);
    w->running = true;
    return 0;
}

void worker_close(struct worker *w)
{
    atomic_store(&w->stopping, true);
    if (w->running && mailbox_post(w->end[0], w))
        (void)pthread_join(w->thread, NULL);
    w->running = false;
    for (int i = 0; i < 2; i++)
        mailbox_close(&w->end[i]);
}
