/* tests/fuzz/fuzz_openai.c - libFuzzer target for JSON that a client or a backend sends to the gateway: its translation
 * is again JSON. */
#include "base/json.h"
#include "gateway/api/inputs.h"
#include "gateway/api/messages.h"
#include "gateway/api/openai.h"
#include "gateway/api/responses.h"
#include "gateway/api/samples.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static void check_text(const struct bytes *b)
{
    json_t *again = json_loadb(bytes_start(b), bytes_count(b), JSON_ALLOW_NUL, NULL);
    must(again != NULL);
    json_decref(again);
}

static void check_value(json_t *value)
{
    char *text = value != NULL ? json_text(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(value);
    must(text != NULL);
    free(text);
}

/* Translates it as a request: one of another API first becomes one of OpenAI's. */
static void translate(const json_t *root)
{
    static struct gateway g;
    static struct exchange x;
    struct openai_request r = {0};
    struct fault f = {0};
    x = (struct exchange){.gateway = &g};
    json_t *message = openai_translate(&x, root, &r, &f);
    must((message == NULL) == (f.status != 0));
    if (message != NULL)
        check_value(message);
}

static void translate_others(const json_t *root)
{
    for (int i = 0; i < 3; i++) {
        struct fault f = {0};
        json_t *chat = i == 0 ? responses_translate(root, &f) : messages_translate(root, i == 1, &f);
        must((chat == NULL) == (f.status != 0));
        if (chat != NULL)
            translate(chat);
        json_decref(chat);
    }
}

/* Translates it as {"inputs", "parameters"}, and as the reply to such a request. */
static void translate_inputs(const json_t *root)
{
    for (int i = 0; i < 2; i++) {
        const struct inputs_style style = {.logprob = "logprob",
                                           .max_new_tokens = 9,
                                           .values_sample = i == 0,
                                           .has_special = i == 0,
                                           .keeps_stop = i == 0};
        struct inputs_call in = {.style = &style, .n_top = 1};
        struct fault f = {0};
        json_t *message = inputs_translate(&in, root, &f);
        must((message == NULL) == (f.status != 0));
        if (message != NULL)
            check_value(message);
        check_value(inputs_details(&in, root, root));
        json_decref(in.prompts);
    }
}

/* Converts it as a reply, and as a choice of a reply. */
static void convert(const json_t *root, bool chat)
{
    struct bytes b = {0};
    int64_t offset = 0;
    struct fault f = fault_of_reply(root);
    const struct openai_request r = {.chat = chat, .echo = true};
    fault_write_openai(&f, &b);
    check_text(&b);
    bytes_free(&b);
    check_value(openai_usage(root));
    check_value(openai_logprobs(root, &r, &offset));
}

static void scrape(const char *text)
{
    struct merged_samples s = {0};
    struct bytes b = {0};
    samples_add(&s, "a\"b", text);
    samples_add(&s, "c", text);
    samples_write(&s, &b);
    samples_free(&s);
    bytes_free(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = {0};
    char *text = malloc(n + 1);
    must(text != NULL);
    memcpy(text, data, n);
    text[n] = '\0';
    json_t *root = json_parse(text, n, "input", &e);
    if (json_is_object(root)) {
        translate(root);
        translate_others(root);
        translate_inputs(root);
        convert(root, n % 2 == 0);
    }
    if (root == NULL)
        scrape(text);
    json_decref(root);
    free(text);
    return 0;
}
