/* tests/unit/test_drafting.c - draft heads (EAGLE-3): both forms of their configs, their tensors, and refusals,
 * including the map of a hostile file. */
#include "partition/drafting.h"
#include "partition/weights.h"
#include "tests/unit/checkpoint_folder.h"
#include "tests/unit/unit.h"

#define HEADS "tests/parity/heads/"

static struct model_config m;

static int parse(const char *text, struct err *e)
{
    *e = (struct err){0};
    return model_config_parse(&m, text, strlen(text), "config.json", e);
}

#define SIZES                                                                                                  \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, " \
    "\"num_hidden_layers\": 1, \"vocab_size\": 100"

static void forms(void **state)
{
    struct err e;
    (void)state;
    assert_int_equal(parse("{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", " SIZES
                           ", \"draft_vocab_size\": 30, \"torch_dtype\": \"bfloat16\"}",
                           &e),
                     0);
    assert_string_equal(m.model_type, "eagle3");
    assert_int_equal(m.drafting.n_taps, 3);
    assert_false(m.drafting.taps_known);
    assert_int_equal(m.drafting.tapped, 32);
    assert_int_equal(m.drafting.vocab, 30);
    assert_int_equal(m.dtype, DTYPE_BF16);
    assert_int_equal(m.rope.dims, 8);
    assert_int_equal(parse("{\"architectures\": [\"LlamaForCausalLMEagle3\"], " SIZES
                           ", \"target_hidden_size\": 64, \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": [1, "
                           "17, 33]}}",
                           &e),
                     0);
    assert_int_equal(m.drafting.tapped, 64);
    assert_int_equal(m.drafting.vocab, 100);
    assert_int_equal(m.drafting.tap[0], 2); /* the output of layer 1 */
    assert_int_equal(m.drafting.tap[2], 34);
    assert_int_equal(parse("{\"speculators_model_type\": \"eagle3\", \"draft_vocab_size\": 30, "
                           "\"norm_before_residual\": true, \"eagle_aux_hidden_state_layer_ids\": [2, 5, 7], "
                           "\"transformer_layer_config\": {\"model_type\": \"qwen3\", \"head_dim\": 8, "
                           "\"dtype\": \"float16\", " SIZES "}}",
                           &e),
                     0);
    assert_true(m.qk_norm && m.drafting.normed_stream && m.drafting.taps_known);
    assert_int_equal(m.drafting.tap[1], 5); /* the input of layer 5 */
    assert_int_equal(m.dtype, DTYPE_F16);
    assert_int_equal(parse("{\"model_type\": \"llama\", " SIZES "}", &e), 0);
    assert_int_equal(m.drafting.n_taps, 0);
}

static void refused_configs(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"{\"speculators_model_type\": \"mtp\"}", "\"speculators_model_type\" is \"mtp\", expected eagle3"},
        {"{\"draft_vocab_size\": 101, " SIZES "}", "\"draft_vocab_size\" is 101, expected"},
        {"{\"draft_vocab_size\": -1, " SIZES "}", "\"draft_vocab_size\" is -1, expected"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"fc_norm\": true}", "\"fc_norm\" is true, which is not implemented"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"target_hidden_size\": 0}", "\"target_hidden_size\" is 0, expected"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"model_type\": \"mixtral\"}", "expected a layer of llama or qwen3"},
        {"{\"draft_vocab_size\": 30, \"num_hidden_layers\": 4, \"vocab_size\": 100}", "expected a head of 1 layer"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"transformer_layer_config\": 3}",
         "\"transformer_layer_config\" is an integer, expected an object"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"eagle_aux_hidden_state_layer_ids\": [1, 2]}",
         "an array of 2, expected an array of 3 layers"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"eagle_aux_hidden_state_layer_ids\": [1, 2, -3]}",
         "[2] is out of range, expected the number of a layer"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"eagle_config\": {\"eagle_aux_hidden_state_layer_ids\": \"all\"}}",
         "expected an array of 3 layers"},
        {"{\"draft_vocab_size\": 30, " SIZES ", \"quantization_config\": {\"quant_method\": \"fp8\", "
         "\"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128]}}",
         "quantised weights of a head that drafts are not implemented"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e;
        assert_int_equal(parse(bad[i].text, &e), -1);
        if (strstr(e.text, bad[i].why) == NULL)
            print_error("%s\n%s: not \"%s\"\n", bad[i].text, e.text, bad[i].why);
        assert_non_null(strstr(e.text, bad[i].why));
    }
}

static void targets(void **state)
{
    static struct model_config model;
    struct err e = {0};
    (void)state;
    model = (struct model_config){
        .model_type = "llama", .n_layers = 32, .hidden = 32, .embed_dim = 32, .vocab = 100, .position = POSITION_ROPE};
    assert_int_equal(parse("{\"draft_vocab_size\": 30, " SIZES "}", &e), 0);
    assert_int_equal(model_draft_for(&m, &model, "head", &e), 0);
    assert_int_equal(m.drafting.tap[0], 2);
    assert_int_equal(m.drafting.tap[1], 16);
    assert_int_equal(m.drafting.tap[2], 29);
    model.n_layers = 28;
    assert_int_equal(model_draft_for(&m, &model, "head", &e), -1);
    expect_text(&e, ERR_USAGE, "draft model head: it reads the input of layer 29, the model has 28 layers");
    e = (struct err){0};
    model.embed_scale = 5;
    assert_int_equal(model_draft_for(&m, &model, "head", &e), -1);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "no \"embed_tokens.weight\"", "the embedding of llama");
    e = (struct err){0};
    model.hidden = 40;
    assert_int_equal(model_draft_for(&m, &model, "head", &e), -1);
    expect_text(&e, ERR_USAGE, "draft model head: a head for a model of hidden size 32, found 40");
    e = (struct err){0};
    model.vocab = 99;
    assert_int_equal(model_draft_for(&m, &model, "head", &e), -1);
    expect_text(&e, ERR_USAGE, "draft model head: a vocabulary of 100 tokens, expected the model's 99");
}

enum { ROWS = 40, NO_ROW = -1, EVERY_ROW = -2 };

/* Copies a head whose map has `value` in row `at`; its config claims `drafted` of `vocab` tokens. */
static int read_damaged(int at, int64_t value, int drafted, int vocab, struct checkpoint *c, struct err *e)
{
    int first = at == EVERY_ROW ? 0 : at, last = at == EVERY_ROW ? ROWS - 1 : at;
    struct folder f;
    static char bytes[100000];
    FILE *file = fopen(HEADS "eagle3-llama/model.safetensors", "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    *e = (struct err){0};
    assert_int_equal(model_config_read(&m, HEADS "eagle3-llama", e), 0);
    m.drafting.vocab = drafted;
    m.vocab = vocab;
    assert_int_equal(checkpoint_open(c, HEADS "eagle3-llama", e), 0);
    for (int row = first; row >= 0 && row <= last; row++)
        memcpy(bytes + c->tensor[checkpoint_find(c, "d2t")].offset + 8 * (size_t)row, &value, sizeof value);
    checkpoint_close(c);
    folder_make(&f);
    folder_write(&f, "model.safetensors", bytes, n);
    assert_int_equal(checkpoint_open(c, f.path, e), 0);
    int rc = drafting_read(c, &m, e);
    folder_remove(&f);
    return rc;
}

static void maps(void **state)
{
    struct err e;
    struct checkpoint c;
    (void)state;
    assert_int_equal(read_damaged(NO_ROW, 0, ROWS, 109, &c, &e), 0);
    assert_false(m.drafting.embeds);
    assert_int_equal(c.n_drafted, ROWS);
    for (int i = 1; i < ROWS; i++)
        assert_true(c.drafted[i] > c.drafted[i - 1] && c.drafted[i] < m.vocab);
    int32_t second = c.drafted[1];
    checkpoint_close(&c);
    const int64_t bad[] = {-1, 109, INT64_MAX, INT64_MIN, second};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_damaged(0, bad[i], ROWS, 109, &c, &e), -1);
        EXPECT_PARTS(&e, ERR_INPUT, "\"d2t\"[", "expected a token below 109 that no other row has");
        checkpoint_close(&c);
    }
    assert_int_equal(read_damaged(NO_ROW, 0, 39, 109, &c, &e), -1);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "\"d2t\" is I64 of 1 dimensions, expected I64 of [39]");
    checkpoint_close(&c);
}

/* A head that drafts every token keeps their order: a map that differs is refused, not ignored. */
static void whole_vocabulary(void **state)
{
    struct err e;
    struct checkpoint c;
    (void)state;
    assert_int_equal(read_damaged(EVERY_ROW, 0, ROWS, ROWS, &c, &e), 0);
    assert_int_equal(c.n_drafted, 0);
    checkpoint_close(&c);
    assert_int_equal(read_damaged(NO_ROW, 0, ROWS, ROWS, &c, &e), -1);
    EXPECT_PARTS(&e, ERR_UNSUPPORTED, "\"d2t\"[", "expected 0: the head drafts every token");
    checkpoint_close(&c);
}

/* Both forms of names; every rank's share; no tensor is left over except the map. */
static void tensors(void **state)
{
    static const char *const name[] = {"eagle3-llama", "eagle3-speculators-qwen3"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[100], unknown[200];
        struct err e = {0};
        struct checkpoint c;
        (void)snprintf(path, sizeof path, HEADS "%s", name[i]);
        assert_int_equal(model_config_read(&m, path, &e), 0);
        assert_int_equal(checkpoint_open(&c, path, &e), 0);
        assert_int_equal(drafting_read(&c, &m, &e), 0);
        assert_int_equal(m.drafting.embeds, i == 1);
        for (int n = 1, states = 0, logits = 0; n <= 3; n++, states = logits = 0)
            for (int rank = 0; rank < n; rank++) {
                struct weight_map map;
                struct shard s;
                shard_make(&s, &m, rank, n);
                assert_int_equal(weight_map_build(&map, &m, &s, &c, &e), 0);
                const struct weight_slot *taps = &map.slot[weight_map_find(&map, WEIGHT_TAPS, -1)];
                assert_int_equal(taps->cols, 3 * m.hidden);
                states += taps->rows;
                logits += map.slot[weight_map_find(&map, WEIGHT_HEAD, -1)].rows;
                assert_int_equal(map.slot[weight_map_find(&map, WEIGHT_QKV, 0)].cols, 2 * m.hidden);
                assert_int_equal(weight_map_find(&map, WEIGHT_EMBED, -1) >= 0, i == 1);
                if (n == 1)
                    assert_int_equal(weight_unknown(&map, &m, &c, unknown, sizeof unknown), 0);
                weight_map_free(&map);
                if (rank == n - 1) {
                    assert_int_equal(states, m.hidden);
                    assert_int_equal(logits, m.drafting.vocab);
                }
            }
        checkpoint_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms), cmocka_unit_test(refused_configs),  cmocka_unit_test(targets),
        cmocka_unit_test(maps),  cmocka_unit_test(whole_vocabulary), cmocka_unit_test(tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
