/* commands/texts.c - see texts.h. */
#include "commands/texts.h"
#include "base/dtype.h"
#include "base/log.h"
#include "base/utf8.h"
#include "commands/generation.h"
#include "coordinator/drafts/draft_options.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Both have the same text for each id. */
static int compare_tokens(const struct tokenizer *t, const struct tokenizer *other, const char *folder, struct err *e)
{
    int32_t n = tokenizer_vocab_size(t), n_other = tokenizer_vocab_size(other);
    for (int32_t id = 0; id < n && id < n_other; id++) {
        size_t bytes = 0, bytes_other = 0;
        const char *text = tokenizer_token_text(t, id, &bytes);
        const char *text_other = tokenizer_token_text(other, id, &bytes_other);
        if (text != NULL && text_other != NULL && (bytes != bytes_other || memcmp(text, text_other, bytes) != 0))
            return ERR(e, ERR_INPUT, "draft model %s: token %d is \"%.*s\", expected the model's \"%.*s\"", folder, id,
                       bytes_other < 40 ? (int)bytes_other : 40, text_other, bytes < 40 ? (int)bytes : 40, text);
    }
    return 0;
}

int texts_check_draft_model(const struct tokenizer *t, const struct run_options *o, struct err *e)
{
    char folder[DRAFT_FOLDER_BYTES], path[DRAFT_FOLDER_BYTES + sizeof "/tokenizer.json"];
    struct tokenizer *other = NULL;
    if (draft_folder(folder, o, e) != 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    if (folder[0] == '\0' || access(path, F_OK) != 0)
        return 0;
    if (tokenizer_open(&other, folder, e) == 0)
        (void)compare_tokens(t, other, folder, e);
    tokenizer_close(&other);
    return e->code == ERR_NONE ? 0 : -1;
}

int texts_open_steps(struct texts *t, const char *dir, const char *name, const struct model_config *m, struct err *e)
{
    t->rope_changes_at = m->position == POSITION_ROPE && m->rope.growth != ROPE_FIXED ? m->rope.long_from : 0;
    t->name[utf8_repair(t->name, sizeof t->name - 1, name, strlen(name))] = '\0';
    if (tokenizer_open(&t->tokenizer, dir, e) != 0)
        return -1;
    lexicon_keeper_open(&t->lexicon, t->tokenizer, m->vocab);
    return 0;
}

int texts_open(struct texts *t, const char *dir, const char *name, const char *chat_template,
               const struct model_config *m, struct err *e)
{
    struct request_rules ids = {0};
    char why[ERR_TEXT_BYTES] = "";
    int32_t bos = -1;
    if (generation_ids(&ids, &bos, dir, m->vocab, e) != 0 || texts_open_steps(t, dir, name, m, e) != 0 ||
        chat_template_open(&t->chat, dir, chat_template, why, sizeof why, e) != 0)
        return -1;
    if (t->chat == NULL)
        log_info("no chats: %s", why);
    (void)snprintf(t->family, sizeof t->family, "%s", m->model_type);
    t->served = (struct served){.model = {.name = t->name, .vocab = m->vocab, .n_eos = ids.sampling.n_eos},
                                .family = t->family,
                                .dtype = dtype_name(m->dtype),
                                .variant = model_variant(m),
                                .tokenizer = t->tokenizer,
                                .lexicon = &t->lexicon,
                                .chat = t->chat,
                                .bos = bos};
    memcpy(t->served.model.eos, ids.sampling.eos, sizeof t->served.model.eos);
    return 0;
}

void texts_close(struct texts *t)
{
    chat_template_close(&t->chat);
    lexicon_keeper_close(&t->lexicon);
    tokenizer_close(&t->tokenizer);
    memset(t, 0, sizeof *t);
}
