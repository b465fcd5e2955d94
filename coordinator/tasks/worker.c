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
static int make_form(struct task *j)
{
    const struct protocol_form *asked = &j->message.generate.form;
    struct err e = {0};
    if (asked->kind == 0 || j->form != NULL)
        return 0;
    if (form_open(&j->form, asked->kind, asked->value, &e) == 0 && lexicon_keeper_get(j->served->lexicon, &e) != NULL)
        return 0;
    return protocol_fail(&j->error, protocol_blame(&e), asked->field, "%s", e.text);
}

/* The schema of an answer without calls; a new reference. NULL: any text, or calls are required. */
static json_t *schema_beside_calls(const struct protocol_form *f)
{
    if (f->kind == FORM_OBJECT)
        return json_pack("{s:s}", "type", "object");
    return f->kind == FORM_SCHEMA ? json_incref((json_t *)f->value) : NULL;
}

/* The calls that an answer has to consist of, unless it has its own form. */
static int make_calls(struct task *j, enum calls_format format)
{
    const struct protocol_generate *g = &j->message.generate;
    struct err e = {0};
    json_t *asked = calls_syntax(format, g->chat.tools, g->tools.only, g->tools.parallel && g->tools.only == NULL);
    json_t *other = schema_beside_calls(&g->form);
    if (other != NULL && json_object_set_new(asked, "or", other) != 0)
        ERR(&e, ERR_MEMORY, "out of host memory");
    if (asked == NULL)
        ERR(&e, ERR_MEMORY, "out of host memory");
    if (e.code == ERR_NONE && form_open(&j->form, FORM_CALLS, asked, &e) == 0)
        (void)lexicon_keeper_get(j->served->lexicon, &e);
    json_decref(asked);
    if (e.code == ERR_NONE)
        return 0;
    return protocol_fail(&j->error, protocol_blame(&e), "tools", "%s", e.text);
}

/* The position at which a chat's answer may contain reasoning. An answer in a given form begins with the form, whatever
 * the end of the prompt. */
static int find_thoughts(struct task *j)
{
    const struct protocol_generate *g = &j->message.generate;
    const struct token_list *ids = &j->ids[0];
    size_t n = ids->n < THOUGHT_TOKENS ? ids->n : THOUGHT_TOKENS, bytes;
    struct err e = {0};
    char *end;
    j->calls.hidden = g->hide_thoughts;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    if (!chat_template_thinks(j->served->chat, g->chat.tools != NULL) || j->calls.format == CALLS_HARMONY)
        return 0;
    if (tokenizer_decode(j->served->tokenizer, ids->id + ids->n - n, n, false, &end, &bytes, &e) != 0)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "messages", "%s", e.text);
    bool begun = g->form.kind == 0 && calls_begins_thought(end, bytes);
    j->calls.thoughts = begun ? THOUGHTS_BEGUN : THOUGHTS_MARKED;
    free(end);
    return 0;
}

/* Is a chat's answer parsed, and must it be a call? The tags may be special tokens, which are then part of the text. */
static int find_calls(struct task *j)
{
    struct protocol_generate *g = &j->message.generate;
    bool tools = g->chat.tools != NULL;
    if (g->n_turns == 0)
        return 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    enum calls_format format = chat_template_calls(j->served->chat, tools);
    if (tools && format == CALLS_NONE && g->tools.choice != TOOLS_UNSAID)
        return protocol_fail(&j->error, PROTOCOL_BAD_REQUEST, "tool_choice",
                             "the chat template of this model writes calls in no form that is known here: only "
                             "\"none\" is possible");
    j->calls.format = tools || format == CALLS_HARMONY ? format : CALLS_NONE;
    if (find_thoughts(j) != 0)
        return -1;
    if (calls_any(j->calls)) {
        g->rules.skip_special = false;
        g->rules.drop_end = true;
    }
    bool formed = g->form.kind == FORM_CALLS || (j->calls.format != CALLS_NONE && protocol_may_call(g));
    return formed && j->form == NULL ? make_calls(j, format) : 0;
}

static int encode_prompts(struct task *j)
{
    const struct served *v = j->served;
    const struct protocol_generate *g = &j->message.generate;
    int n = g->prompt != NULL ? g->n_prompts : 1;
    j->ids = calloc((size_t)n, sizeof *j->ids);
    if (j->ids == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
    for (j->n_ids = 0; j->n_ids < n;) {
        struct token_list *ids = &j->ids[j->n_ids];
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
        if (encode_request(g, j->n_ids++, v->tokenizer, v->chat, v->model.vocab, v->bos, ids, &j->error) != 0)
            return -1;
    }
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): as above */
    if (encode_prediction(g, v->tokenizer, v->model.vocab, &j->prediction, &j->error) != 0)
        return -1;
    if (find_calls(j) != 0 || make_form(j) != 0)
        return -1;
    if (g->n_turns > 0)
        protocol_forget_chat(&j->message);
    return 0;
}

static int write_prompt(struct task *j, int i)
{
    const struct protocol_generate *g = &j->message.generate;
    const char *text = g->prompt[i].text;
    size_t bytes = g->prompt[i].bytes;
    struct err e = {0};
    char *made = NULL;
    if (text == NULL) {
        (void)tokenizer_decode(j->served->tokenizer, j->ids[i].id, j->ids[i].n, g->rules.skip_special, &made, &bytes,
                               &e);
        text = made;
    }
    if (text != NULL)
        j->echo[i].text = reply_characters(text, bytes, &j->echo[i].bytes);
    free(made);
    if (j->echo[i].text == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "%s",
                             e.code != ERR_NONE ? e.text : "out of host memory");
    return 0;
}

/* A stream's first events repeat the prompts, which may be megabytes: the I/O thread has no time to write them.
 * Prompts that are too long are refused when the task is prepared. */
static int write_echo(struct task *j, const struct worker_setup *s)
{
    const struct protocol_generate *g = &j->message.generate;
    int64_t bytes = 0;
    if (!g->stream || !g->echo || g->prompt == NULL)
        return 0;
    for (int i = 0; i < j->n_ids; i++)
        bytes += task_echo_bytes(j, i);
    if (bytes > s->max_reply)
        return 0;
    j->echo = calloc((size_t)j->n_ids, sizeof *j->echo);
    if (j->echo == NULL)
        return protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
    for (int i = 0; i < j->n_ids; i++)
        if (write_prompt(j, i) != 0)
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

static int check_reply(struct task *j, const char *field, size_t n, int64_t bytes, int64_t most)
{
    if (bytes <= most)
        return 0;
    return protocol_fail(&j->error, PROTOCOL_TOO_LARGE, field,
                         "the reply may take %lld bytes (%zu tokens), expected at most %lld (--max-reply-bytes)",
                         (long long)bytes, n, (long long)most);
}

static void detokenize(struct task *j, const struct worker_setup *s)
{
    const struct protocol_message *m = &j->message;
    struct err e = {0};
    char *text = NULL;
    size_t bytes = 0;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): what needs a model has one, see work() */
    if (check_reply(j, "token_ids", m->ids.n, texts_bytes(&m->ids, j->served->tokenizer), s->max_reply) != 0)
        return;
    if (tokenizer_decode(j->served->tokenizer, m->ids.id, m->ids.n, m->skip_special_tokens, &text, &bytes, &e) != 0)
        (void)protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "%s", e.text);
    else
        j->reply = reply_detokenize(m->request_id, text, bytes, &j->reply_bytes);
    free(text);
}

static void tokenize(struct task *j, const struct worker_setup *s)
{
    const struct protocol_message *m = &j->message;
    if (encode_prompts(j) != 0)
        return;
    const struct token_list *ids = &j->ids[0];
    int64_t bytes = ids_bytes(ids) + (m->generate.return_token_strings ? texts_bytes(ids, j->served->tokenizer) : 0);
    if (check_reply(j, m->generate.n_turns > 0 ? "messages" : "prompt", ids->n, bytes, s->max_reply) == 0)
        j->reply = reply_tokenize(m->request_id, j->ids[0].id, j->ids[0].n, j->served->tokenizer,
                                  m->generate.return_token_strings, j->max_len, &j->reply_bytes);
}

/* The reply contains the context's length, so it has to be known. */
static void work_on_tokens(struct task *j, const struct worker_setup *s)
{
    if (j->max_len == 0)
        return;
    if (j->message.op == PROTOCOL_TOKENIZE)
        tokenize(j, s);
    else
        detokenize(j, s);
    if (j->reply == NULL && j->error.code == 0)
        (void)protocol_fail(&j->error, PROTOCOL_INTERNAL, "", "out of host memory");
}

static void write_reply(struct task *j)
{
    struct finished f;
    finished_measure(&f, j, seconds_now());
    finished_judge(j);
    j->reply = finished_reply(&f, j, j->served->tokenizer, j->served->model.name, &j->reply_bytes);
    finished_close(&f);
}

static void work_on(struct task *j, const struct worker_setup *s)
{
    if (j->ticket.writes) {
        write_reply(j);
        return;
    }
    if (!j->parsed)
        task_read(j);
    if (j->error.code != 0 || (j->served == NULL && protocol_needs_model(j->message.op)))
        return;
    if (!j->checked)
        task_check(j);
    if (j->error.code != 0)
        return;
    if (j->message.op == PROTOCOL_GENERATE)
        (void)(encode_prompts(j) == 0 && write_echo(j, s) == 0);
    else if (j->message.op == PROTOCOL_TOKENIZE || j->message.op == PROTOCOL_DETOKENIZE)
        work_on_tokens(j, s);
}

/* Megabytes of JSON are made of many small pieces of memory: they go back to the system now. */
static void work_and_tidy(struct task *j, const struct worker_setup *s)
{
    work_on(j, s);
    if (j->reply_bytes > TRIM_BYTES || j->message_bytes > TRIM_BYTES)
        (void)malloc_trim(0);
}

/* The worker's own address as a message ends it. */
static void *run_worker(void *context)
{
    struct worker *w = context;
    for (struct task *j; (j = mailbox_next(w->end[1], w)) != NULL;) {
        if (!atomic_load(&w->stopping) && !atomic_load(&j->abandoned))
            work_and_tidy(j, &w->setup);
        (void)mailbox_post(w->end[1], j);
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
