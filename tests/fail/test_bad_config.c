/* tests/fail/test_bad_config.c - config.json and generation_config.json that are malformed, absurd, or request
 * unsupported features; paths that are not folders. */
#include "base/err.h"
#include "tests/support/bad_start.h"
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONFIG     "config.json"
#define GENERATION "generation_config.json"
#define START      "generate", "--model"
#define END        "--prompt-ids", "1", NULL

static void no_folder_at_all(const char *dir)
{
    files_remove_dir(dir);
}

static void empty_folder(const char *dir)
{
    static const char *const names[] = {CONFIG, "model.safetensors", "tokenizer.json"};
    char path[600];
    for (int i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
}

static void huge_config(const char *dir)
{
    static char text[17 << 20];
    memset(text, ' ', sizeof text);
    files_write(dir, CONFIG, text, sizeof text);
}

/* Sizes that are each valid, 672 GiB together: the error is that the checkpoint's shapes differ. */
static void huge_model(const char *dir)
{
    models_edit(dir, CONFIG, "num_hidden_layers", "512");
    models_edit(dir, CONFIG, "intermediate_size", "4194304");
}

static const struct bad_start cases[] = {
    {"no such folder", .damage = no_folder_at_all, .status = ERR_IO, .words = {"cannot open", "No such file"}},
    {"an empty folder", .damage = empty_folder, .status = ERR_IO, .words = {CONFIG, "cannot open", "No such file"}},
    {"a file in place of a folder", .status = ERR_INPUT, .argument = {START, "/etc/passwd", END},
     .words = {"/etc/passwd", "is a file", "expected the folder"}},
    {"an empty config", CONFIG, NULL, "", .status = ERR_INPUT, .words = {CONFIG, "not valid JSON"}},
    {"a config that ends early", CONFIG, NULL, "{\"model_type\": \"llama\",", .status = ERR_INPUT,
     .words = {CONFIG, "not valid JSON", "line 1"}},
    {"a config that is an array", CONFIG, NULL, "[1, 2]", .status = ERR_INPUT,
     .words = {CONFIG, "an array", "expected an object"}},
    {"a config with a repeated key", CONFIG, NULL, "{\"model_type\": \"llama\", \"model_type\": \"gpt2\"}",
     .status = ERR_INPUT, .words = {CONFIG, "duplicate", "model_type"}},
    {"a config of 17 MiB", .damage = huge_config, .status = ERR_INPUT,
     .words = {CONFIG, "17825792", "at most 16777216"}},
    {"no model_type", CONFIG, NULL, "{}", .status = ERR_INPUT,
     .words = {CONFIG, "model_type", "expected", "lockstep inspect --help"}},
    {"an unknown model_type", CONFIG, "model_type", "\"mamba\"", .status = ERR_UNSUPPORTED,
     .words = {CONFIG, "\"mamba\"", "expected one of the", "lockstep inspect --help lists"}},
    {"a model_type that is a number", CONFIG, "model_type", "7", .status = ERR_INPUT,
     .words = {CONFIG, "model_type", "an integer", "expected a string"}},
    {"quantised weights", CONFIG, "quantization_config", "{\"quant_method\": \"aqlm\"}", .status = ERR_UNSUPPORTED,
     .words = {CONFIG, "quantization_config", "aqlm", "use one of these or the unquantised repository"}},
    {"an unknown dtype", CONFIG, "dtype", "\"float8_e4m3fn\"", .status = ERR_UNSUPPORTED,
     .words = {CONFIG, "\"float8_e4m3fn\"", "expected float32, float16 or bfloat16"}},
    {"an unknown activation", CONFIG, "hidden_act", "\"mish\"", .status = ERR_UNSUPPORTED,
     .words = {CONFIG, "hidden_act", "\"mish\"", "expected gelu"}},
    {"zero heads", CONFIG, "num_attention_heads", "0", .status = ERR_INPUT,
     .words = {CONFIG, "num_attention_heads", "is 0", "expected an integer in [1, "}},
    {"a negative number of heads", CONFIG, "num_attention_heads", "-7", .status = ERR_INPUT,
     .words = {CONFIG, "num_attention_heads", "is -7", "expected"}},
    {"zero KV heads", CONFIG, "num_key_value_heads", "0", .status = ERR_INPUT,
     .words = {CONFIG, "num_key_value_heads", "is 0", "expected"}},
    {"KV heads that do not divide the heads", CONFIG, "num_key_value_heads", "2", .status = ERR_INPUT,
     .words = {CONFIG, "num_key_value_heads", "is 2", "expected a divisor of the 7"}},
    {"zero layers", CONFIG, "num_hidden_layers", "0", .status = ERR_INPUT,
     .words = {CONFIG, "num_hidden_layers", "is 0", "expected"}},
    {"a billion layers", CONFIG, "num_hidden_layers", "1000000000", .status = ERR_INPUT,
     .words = {CONFIG, "num_hidden_layers", "is 1000000000", "expected an integer in [1, "}},
    {"one layer more than the checkpoint has", CONFIG, "num_hidden_layers", "3", .status = ERR_INPUT,
     .words = {"model.layers.2.", "missing", "config.json"}},
    {"a hidden size beyond int", CONFIG, "hidden_size", "4294967324", .status = ERR_INPUT,
     .words = {CONFIG, "hidden_size", "is 4294967324", "expected"}},
    {"a hidden size beyond int64", CONFIG, "hidden_size", "1e300", .status = ERR_INPUT,
     .words = {CONFIG, "hidden_size", "expected an integer"}},
    {"another hidden size than the checkpoint's", CONFIG, "hidden_size", "35", .status = ERR_INPUT,
     .words = {"model.embed_tokens.weight", "[101, 28]", "expected [101, 35]"}},
    {"a hidden size that is text", CONFIG, "hidden_size", "\"28\"", .status = ERR_INPUT,
     .words = {CONFIG, "hidden_size", "a string", "expected an integer"}},
    {"a fractional hidden size", CONFIG, "hidden_size", "28.5", .status = ERR_INPUT,
     .words = {CONFIG, "hidden_size", "a real number", "expected an integer"}},
    {"an empty vocabulary", CONFIG, "vocab_size", "0", .status = ERR_INPUT,
     .words = {CONFIG, "vocab_size", "is 0", "expected"}},
    {"a larger vocabulary than the checkpoint's", CONFIG, "vocab_size", "102", .status = ERR_INPUT,
     .words = {"model.embed_tokens.weight", "[101, 28]", "expected [102, 28]"}},
    {"a model too large for any machine", .damage = huge_model, .status = ERR_INPUT,
     .words = {"mlp.", "[41, 28]", "expected [4194304, 28]"}},
    {"sizes at their bounds", CONFIG, "intermediate_size", "4194304", .status = ERR_INPUT,
     .words = {"mlp.", "[41, 28]", "expected [4194304, 28]"}},
    {"heads without dimensions", CONFIG, "head_dim", "0", .status = ERR_INPUT,
     .words = {CONFIG, "head_dim", "is 0", "expected"}},
    {"heads with an odd number of dimensions", CONFIG, "head_dim", "5", .status = ERR_INPUT,
     .words = {CONFIG, "5 dimensions", "expected an even number"}},
    {"a negative norm epsilon", CONFIG, "rms_norm_eps", "-1e-6", .status = ERR_INPUT,
     .words = {CONFIG, "rms_norm_eps", "-1e-06", "expected"}},
    {"an unknown kind of rope", CONFIG, "rope_parameters/rope_type", "\"spiral\"", .status = ERR_UNSUPPORTED,
     .words = {CONFIG, "\"spiral\"", "expected"}},
    {"rope parameters that are a number", CONFIG, "rope_parameters", "7", .status = ERR_INPUT,
     .words = {CONFIG, "rope", "an integer", "expected an object"}},
    {"tie_word_embeddings that is text", CONFIG, "tie_word_embeddings", "\"yes\"", .status = ERR_INPUT,
     .words = {CONFIG, "tie_word_embeddings", "a string", "expected true or false"}},
    {"a generation config that is an array", GENERATION, NULL, "[]", .status = ERR_INPUT,
     .words = {GENERATION, "an array", "expected an object"}},
    {"a generation config that ends early", GENERATION, NULL, "{\"do_sample\"", .status = ERR_INPUT,
     .words = {GENERATION, "not valid JSON"}},
    {"a temperature that is text", GENERATION, NULL, "{\"do_sample\": true, \"temperature\": \"hot\"}",
     .status = ERR_INPUT, .words = {GENERATION, "temperature", "a string", "expected a number"}},
    {"beam search", GENERATION, NULL, "{\"num_beams\": 4}", .status = ERR_UNSUPPORTED,
     .words = {GENERATION, "num_beams", "is 4", "only 1"}},
    {"forbidden words", GENERATION, NULL, "{\"bad_words_ids\": [[1]]}", .status = ERR_UNSUPPORTED,
     .words = {GENERATION, "bad_words_ids", "not supported"}},
    {"an end-of-text id that is text", GENERATION, NULL, "{\"eos_token_id\": \"</s>\"}", .status = ERR_INPUT,
     .words = {GENERATION, "eos_token_id", "a string", "expected an integer or a list"}},
};

int main(void)
{
    bad_start_run(cases, (int)(sizeof cases / sizeof cases[0]));
    return cases_done();
}
