/* tests/fail/test_bad_tokenizer.c - tokenizer files that must be refused (tokenizers.md section 7). */
#include "base/err.h"
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TOKENIZER      "tokenizer.json"
#define ADDED(members) "[{\"content\": \"<x>\"" members "}]"
#define FLAGS          ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false"
#define SPECIAL        ", \"special\": true"

static void sentencepiece_only(const char *dir)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/" TOKENIZER, dir);
    (void)unlink(path);
    files_write(dir, "tokenizer.model", "\n\x0e", 2);
}

static void broken_config(const char *dir)
{
    files_write(dir, "tokenizer_config.json", "{\"add_bos_token\": ", 18);
}

static void vocab_without_merges(const char *dir)
{
    char path[600];
    (void)snprintf(path, sizeof path, "%s/" TOKENIZER, dir);
    (void)unlink(path);
    files_write(dir, "vocab.json", "{\"a\":0}", 7);
}

static void deep(const char *dir)
{
    static char text[40001];
    memset(text, '[', 20000);
    memset(text + 20000, ']', 20000);
    files_write(dir, TOKENIZER, text, 40000);
}

static const struct bad_start cases[] = {
    {"no tokenizer", TOKENIZER, NULL, NULL, .status = ERR_IO,
     .words = {"neither " TOKENIZER, "vocab.json with merges.txt"}},
    {"a vocabulary without merges", .damage = vocab_without_merges, .status = ERR_IO,
     .words = {"neither " TOKENIZER, "vocab.json with merges.txt"}},
    {"tokenizer.model only", .damage = sentencepiece_only, .status = ERR_UNSUPPORTED,
     .words = {"tokenizer.model", "SentencePiece", "write " TOKENIZER, "save_pretrained"}},
    {"a tokenizer that ends early", TOKENIZER, NULL, "{\"version\": \"1.0\", \"model\": {", .status = ERR_INPUT,
     .words = {TOKENIZER, "line 1"}},
    {"an empty tokenizer", TOKENIZER, NULL, "", .status = ERR_INPUT, .words = {TOKENIZER}},
    {"a tokenizer that is an array", TOKENIZER, NULL, "[]", .status = ERR_INPUT,
     .words = {TOKENIZER, "an array", "expected an object"}},
    {"a tokenizer nested 20000 deep", .damage = deep, .status = ERR_INPUT,
     .words = {TOKENIZER, "20000 deep", "at most"}},
    {"a repeated key", TOKENIZER, NULL, "{\"version\": \"1.0\", \"version\": \"1.0\"}", .status = ERR_INPUT,
     .words = {TOKENIZER, "duplicate", "version"}},
    {"another version", TOKENIZER, "version", "\"2.0\"", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "version", "2.0", "expected \"1.0\""}},
    {"no model", TOKENIZER, "model", NULL, .status = ERR_INPUT,
     .words = {TOKENIZER, "\"model\" is nothing", "expected an object"}},
    {"an unknown model", TOKENIZER, "model/type", "\"Unigram\"", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "\"Unigram\"", "supported: BPE"}},
    {"dropout", TOKENIZER, "model/dropout", "0.1", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "dropout", "0.1", "expected null or 0"}},
    {"no merges", TOKENIZER, "model/merges", NULL, .status = ERR_INPUT,
     .words = {TOKENIZER, "\"merges\" is nothing", "expected an array"}},
    {"a merge of an unknown token", TOKENIZER, "model/merges", "[\"a b\"]", .status = ERR_INPUT,
     .words = {TOKENIZER, "merge 0", "\"ab\"", "not in the vocabulary"}},
    {"a merge from an unknown token", TOKENIZER, "model/merges", "[[\"qq\", \"b\"]]", .status = ERR_INPUT,
     .words = {TOKENIZER, "merge 0", "\"qq\"", "not in the vocabulary"}},
    {"a merge of three parts", TOKENIZER, "model/merges", "[\"a b c\"]", .status = ERR_INPUT,
     .words = {TOKENIZER, "merge 0", "\"a b c\"", "expected two tokens"}},
    {"a merge pair of three", TOKENIZER, "model/merges", "[[\"a\", \"b\", \"c\"]]", .status = ERR_INPUT,
     .words = {TOKENIZER, "merge 0", "an array of 3", "expected two strings"}},
    {"merges in both forms", TOKENIZER, "model",
     "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\", [\"a\", \"b\"]]}",
     .status = ERR_INPUT, .words = {TOKENIZER, "merge 1 is an array", "merge 0 is a string", "expected all"}},
    {"an empty vocabulary", TOKENIZER, "model/vocab", "{}", .status = ERR_INPUT,
     .words = {TOKENIZER, "vocabulary is empty"}},
    {"a vocabulary that is an array", TOKENIZER, "model/vocab", "[\"a\"]", .status = ERR_INPUT,
     .words = {TOKENIZER, "\"vocab\" is an array", "expected an object"}},
    {"a negative id", TOKENIZER, "model/vocab/a", "-1", .status = ERR_INPUT,
     .words = {TOKENIZER, "\"a\"", "is -1", "expected one in [0, "}},
    {"an id beyond 2^31", TOKENIZER, "model/vocab/a", "2147483648", .status = ERR_INPUT,
     .words = {TOKENIZER, "\"a\"", "is 2147483648", "expected one in [0, "}},
    {"an id that is text", TOKENIZER, "model/vocab/a", "\"7\"", .status = ERR_INPUT,
     .words = {TOKENIZER, "\"a\"", "expected an integer"}},
    {"two tokens with one id", TOKENIZER, "model/vocab/a", "34", .status = ERR_INPUT,
     .words = {TOKENIZER, "\"a\"", "\"B\"", "both have id 34"}},
    {"an unknown pre_tokenizer", TOKENIZER, "pre_tokenizer/type", "\"BertPreTokenizer\"", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "\"BertPreTokenizer\"", "supported: ByteLevel"}},
    {"an unknown decoder", TOKENIZER, "decoder/type", "\"CTC\"", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "\"CTC\"", "supported"}},
    {"an unknown normalizer", TOKENIZER, "normalizer", "{\"type\": \"Precompiled\"}", .status = ERR_UNSUPPORTED,
     .words = {TOKENIZER, "\"Precompiled\"", "supported"}},
    {"an unknown post_processor", TOKENIZER, "post_processor", "{\"type\": \"NoSuchProcessing\"}",
     .status = ERR_UNSUPPORTED, .words = {TOKENIZER, "\"NoSuchProcessing\"", "supported"}},
    {"a pattern that does not compile", TOKENIZER, "pre_tokenizer",
     "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a\"}, \"behavior\": \"Isolated\", \"invert\": false}",
     .status = ERR_INPUT, .words = {TOKENIZER, "pattern", "Split"}},
    {"an added token without id", TOKENIZER, "added_tokens", ADDED(FLAGS SPECIAL), .status = ERR_INPUT,
     .words = {TOKENIZER, "added_tokens[0]", "\"<x>\"", "expected an integer in [0, "}},
    {"an added token with a negative id", TOKENIZER, "added_tokens", ADDED(", \"id\": -3" FLAGS SPECIAL),
     .status = ERR_INPUT, .words = {TOKENIZER, "added_tokens[0]", "\"<x>\"", "expected an integer in [0, "}},
    {"an added token without a flag", TOKENIZER, "added_tokens", ADDED(", \"id\": 100" FLAGS), .status = ERR_INPUT,
     .words = {TOKENIZER, "added_tokens[0]", "\"special\" is nothing", "expected true or false"}},
    {"an added token with another token's id", TOKENIZER, "added_tokens", ADDED(", \"id\": 34" FLAGS SPECIAL),
     .status = ERR_INPUT, .words = {TOKENIZER, "added_tokens[0]", "id 34", "\"B\""}},
    {"a tokenizer_config that ends early", .damage = broken_config, .status = ERR_INPUT,
     .words = {"tokenizer_config.json", "line 1"}},
};

int main(void)
{
    bad_start_run(cases, (int)(sizeof cases / sizeof cases[0]));
    return cases_done();
}
