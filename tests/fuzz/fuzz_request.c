/* tests/fuzz/fuzz_request.c - libFuzzer target for a client's message: parsed, its prompts and chats encoded, its reply
 * written. clang -fsanitize=fuzzer,address,undefined ... ; corpus: tests/fuzz/corpus/request, words:
 * tests/fuzz/request.dict. Besides memory safety: a refusal has a code, one line of text and a reply that is JSON;
 * accepted values are within their ranges; a user's words never become special tokens; any bytes can be written as a
 * reply. */
#include "base/utf8.h"
#include "coordinator/tasks/encode.h"
#include "protocol/reply.h"
#include "tests/fuzz/fuzz.h"
#include "text/chat_parts.h"
#include "text/stop.h"
#include "text/tokenizer/unicode.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define VOCAB 300

static const struct protocol_model model = {.name = "m", .vocab = VOCAB, .n_eos = 2, .eos = {1, 2}};

/* Has single bytes, and the special tokens of chats. */
static struct tokenizer *open_tokenizer(void)
{
    static const char *const special[] = {"<s>",        "</s>",       "<|im_start|>",
                                          "<|im_end|>", "<|eot_id|>", "<|start_header_id|>"};
    json_t *vocab = json_object(), *added = json_array();
    struct tokenizer *t = NULL;
    struct err e = {0};
    char piece[8];
    for (int byte = 0; byte < 256; byte++) {
        piece[utf8_put(piece, unicode_byte_to_char(byte))] = '\0';
        (void)json_object_set_new(vocab, piece, json_integer(byte));
    }
    for (int i = 0; i < 6; i++)
        (void)json_array_append_new(added, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 256 + i, "content",
                                                     special[i], "special", 1, "normalized", 0, "lstrip", 0, "rstrip",
                                                     0, "single_word", 0));
    json_t *root =
        json_pack("{s:o, s:n, s:{s:s, s:b, s:b}, s:n, s:{s:s}, s:{s:s, s:o, s:[]}}", "added_tokens", added,
                  "normalizer", "pre_tokenizer", "type", "ByteLevel", "add_prefix_space", 0, "use_regex", 0,
                  "post_processor", "decoder", "type", "ByteLevel", "model", "type", "BPE", "vocab", vocab, "merges");
    char *text = json_dumps(root, 0);
    must(text != NULL && tokenizer_open_memory(&t, text, strlen(text), "fuzz", &e) == 0);
    free(text);
    json_decref(root);
    return t;
}

static void check_reply(char *text, size_t bytes)
{
    must(text != NULL && strlen(text) == bytes);
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL);
    must(json_is_object(root));
    json_decref(root);
    free(text);
}

static void check_error(const struct protocol_message *m, const struct protocol_error *error)
{
    size_t bytes = 0;
    must(error->code == 400 || error->code == 404 || error->code == 413);
    must(error->message[0] != '\0' && strpbrk(error->message, "\n\r\x1b") == NULL);
    char *text = reply_error(m->request_id, error, &bytes);
    check_reply(text, bytes);
}

static void check_ids(const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        must(id[i] >= 0 && id[i] < VOCAB);
}

static void check_rules(const struct protocol_generate *g)
{
    const struct request_rules *r = &g->rules;
    const struct sampling *s = &r->sampling;
    must(r->max_tokens == PROTOCOL_FILL || (r->max_tokens >= 1 && r->max_tokens <= PROTOCOL_MAX_TOKENS));
    must(s->min_tokens >= 0 && (r->max_tokens < 0 || s->min_tokens <= r->max_tokens));
    must(s->temperature >= 0 && s->temperature <= 100 && s->top_p >= 0 && s->top_p <= 1 && s->min_p >= 0 &&
         s->min_p <= 1 && s->top_k >= 0 && s->repetition_penalty > 0);
    must(s->n_top >= 0 && s->n_top <= SAMPLING_MAX_TOP && s->n_prompt_top >= 0 && s->n_prompt_top <= SAMPLING_MAX_TOP);
    must(s->n_bias >= 0 && s->n_bias <= SAMPLING_MAX_BIAS && s->n_eos >= 0 && s->n_eos <= SAMPLING_MAX_EOS);
    check_ids(s->bias_id, (size_t)s->n_bias);
    check_ids(s->eos, (size_t)s->n_eos);
    must(r->n_stop_ids >= 0 && r->n_stop_ids <= REQUEST_MAX_STOP_IDS);
    must(r->stop == NULL || (r->stop->n >= 1 && r->stop->n <= STOP_MAX_STRINGS));
    for (int i = 0; r->stop != NULL && i < r->stop->n; i++)
        must(r->stop->string[i].bytes > 0 && r->stop->string[i].bytes <= STOP_MAX_BYTES);
    int each = g->search.num_beams > 1 ? g->search.num_beams : g->search.n;
    must(g->search.n >= 1 && g->search.num_beams >= 1 && g->search.num_beams <= BEAM_MAX);
    must((int64_t)g->n_prompts * each <= PROTOCOL_MAX_SEQUENCES);
    must(g->timeout_ms >= 0);
}

static const char source[] =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}{{ m.tool_calls | tojson if "
    "m.tool_calls }}<|im_end|>\n{% endfor %}{% if tools %}{{ tools | tojson(indent=1) }}{% endif %}{{ documents }}{{ "
    "think ~ '' "
    "}}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* If users may not write special tokens, there are only the template's: as many as for empty messages. */
static void check_injection(const struct protocol_generate *g, const struct token_list *ids, const struct tokenizer *t)
{
    int n = 0, want = 1 + 2 * g->n_turns + g->chat.add_generation_prompt;
    bool replaced = json_object_get(g->chat.variables, "bos_token") != NULL;
    for (size_t i = 0; i < ids->n; i++)
        n += tokenizer_is_special(t, ids->id[i]);
    must(n == want - replaced);
}

/* Words of a prediction never become special tokens. */
static void encode_predicted(const struct protocol_generate *g, const struct tokenizer *t)
{
    struct token_list ids = {0};
    struct protocol_error error = {0};
    if (encode_prediction(g, t, VOCAB, &ids, &error) == 0)
        check_ids(ids.id, ids.n);
    else
        must(error.code == 400 && error.message[0] != '\0');
    for (size_t i = 0; i < ids.n; i++)
        must(!tokenizer_is_special(t, ids.id[i]));
    token_list_free(&ids);
}

static void encode(const struct protocol_generate *g, const struct tokenizer *t, const struct chat_template *chat)
{
    encode_predicted(g, t);
    for (int i = 0; i < g->n_prompts && i < 4; i++) {
        struct token_list ids = {0};
        struct protocol_error error = {0};
        if (encode_request(g, i, t, chat, VOCAB, -1, &ids, &error) == 0) {
            must(ids.n > 0 || g->may_be_empty);
            check_ids(ids.id, ids.n);
            if (g->prompt == NULL && !g->parse_special)
                check_injection(g, &ids, t);
        } else {
            must(error.code == 400 && error.message[0] != '\0');
        }
        token_list_free(&ids);
    }
}

static bool is_in_front(const struct protocol_message *m, const char *field, int place)
{
    void *at = m->root != NULL ? json_object_iter(m->root) : NULL;
    for (; at != NULL && place > 0; place--)
        at = json_object_iter_next(m->root, at);
    return at != NULL && strcmp(json_object_iter_key(at), field) == 0;
}

/* The names found in front of an unparsed message are those that the parser finds there. */
static void check_front(const struct protocol_message *m, const char *json, size_t bytes, bool valid)
{
    char party[PROTOCOL_MAX_ID_BYTES + 1], id[PROTOCOL_MAX_ID_BYTES + 1];
    protocol_find_party(json, bytes, party);
    protocol_find_id(json, bytes, id);
    if (m->root == NULL)
        return;
    const json_t *name = json_object_get(m->root, "on_behalf_of");
    must(strcmp(party, m->party) == 0);
    must(party[0] == '\0' || (is_in_front(m, "on_behalf_of", 0) && strcmp(json_string_value(name), party) == 0));
    must(!valid || party[0] != '\0' || name == NULL || json_is_null(name));
    must(id[0] == '\0' || (is_in_front(m, "request_id", party[0] != '\0' ? 1 : 0) && strcmp(m->request_id, id) == 0));
}

static void check_message(const struct protocol_message *m, const struct tokenizer *t, const struct chat_template *chat)
{
    const struct protocol_generate *g = &m->generate;
    if (m->op == PROTOCOL_DETOKENIZE)
        check_ids(m->ids.id, m->ids.n);
    if (m->op != PROTOCOL_GENERATE && m->op != PROTOCOL_TOKENIZE)
        return;
    must(g->n_prompts >= 1 && (g->prompt != NULL) != (g->turn != NULL));
    for (int i = 0; g->prompt != NULL && i < g->n_prompts; i++) {
        const struct protocol_prompt *p = &g->prompt[i];
        must((p->text != NULL) != (p->id != NULL));
        must(p->text == NULL || p->text[p->bytes] == '\0');
        check_ids(p->id, p->n_ids);
    }
    if (m->op == PROTOCOL_GENERATE)
        check_rules(g);
    encode(g, t, chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *tokenizer;
    static struct chat_template chat = {.name = "fuzz"};
    struct err e = {0};
    struct protocol_message m;
    struct protocol_error error;
    size_t bytes = 0;
    if (tokenizer == NULL) {
        tokenizer = open_tokenizer();
        chat.tokens = json_pack("{s:s}", "bos_token", "<s>");
        must(jinja_open(&chat.usual, "fuzz", source, sizeof source - 1, &e) == 0);
    }
    bool valid = protocol_parse(&m, (const char *)data, size, &model, size % 2 == 0, &error) == 0;
    check_front(&m, (const char *)data, size, valid);
    if (!valid)
        check_error(&m, &error);
    else
        check_message(&m, tokenizer, &chat);
    protocol_message_close(&m);
    char *text = reply_detokenize(NULL, (const char *)data, size, &bytes);
    check_reply(text, bytes);
    return 0;
}
