/* tests/fuzz/fuzz_model_files.c - libFuzzer target for the small files of a model's folder: the text is used as
 * tokenizer_config.json and as generation_config.json, with a tokenizer of five tokens. Accepted text gives ids within
 * the vocabulary; a refusal names the file. */
#include "commands/generation.h"
#include "commands/options.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/scratch.h"
#include "text/chat.h"
#include "text/tokenizer/tokenizer.h"

#define VOCAB 5

static const char tokenizer_json[] =
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":4,\"content\":\"</s>\",\"single_word\":false,"
    "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":"
    "null,\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},"
    "\"merges\":[\"a b\"]}}";

static void check_refused(const struct err *e, const char *name)
{
    must(e->code != ERR_NONE && strstr(e->text, name) != NULL);
}

static void check_tokenizer(void)
{
    struct tokenizer *t = NULL;
    struct token_list ids = {0};
    struct err e = {0};
    if (tokenizer_open(&t, scratch, &e) != 0) {
        check_refused(&e, "tokenizer_config.json");
        return;
    }
    if (tokenizer_encode(t, "abba", 4, 1, &ids, &e) == 0)
        for (size_t i = 0; i < ids.n; i++)
            must(ids.id[i] >= 0 && ids.id[i] < VOCAB);
    token_list_free(&ids);
    tokenizer_close(&t);
}

static void check_chat(void)
{
    struct chat_template *chat = NULL;
    char why[256];
    struct err e = {0};
    if (chat_template_open(&chat, scratch, NULL, why, sizeof why, &e) != 0)
        check_refused(&e, "tokenizer_config.json");
    must(chat != NULL || e.code != ERR_NONE || why[0] != '\0');
    chat_template_close(&chat);
}

static void check_rules(const struct generate_options *o)
{
    struct request_rules rules = {0};
    int32_t bos = -1;
    struct err e = {0};
    if (generation_rules(&rules, &bos, o, VOCAB, &e) == 0) {
        must(rules.sampling.n_eos >= 0 && rules.sampling.n_eos <= SAMPLING_MAX_EOS);
        for (int i = 0; i < rules.sampling.n_eos; i++)
            must(rules.sampling.eos[i] >= 0 && rules.sampling.eos[i] < VOCAB);
    } else {
        must(e.code != ERR_NONE && e.text[0] != '\0');
    }
    generation_rules_close(&rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct options o;
    static bool opened;
    struct err e = {0};
    scratch_write("tokenizer_config.json", data, size);
    scratch_write("generation_config.json", data, size);
    if (!opened) {
        static char folder[sizeof scratch];
        strcpy(folder, scratch);
        char *argv[] = {"lockstep", "generate", "--model", folder, "--prompt", "a", NULL};
        scratch_write("tokenizer.json", tokenizer_json, sizeof tokenizer_json - 1);
        scratch_write("config.json", "{\"bos_token_id\":3,\"eos_token_id\":[4,9]}", 39);
        must(options_parse(&o, 6, argv, &e) == 0);
        opened = true;
    }
    check_tokenizer();
    check_chat();
    check_rules(&o.generate);
    return 0;
}
