/* tests/unit/test_weights.c - names with and without prefix, tied heads, biases, and errors in a tensor. test_read_plan
 * tests the destination of each element. */
#include "tests/unit/checkpoint_folder.h"

#include "partition/weights.h"

/* One layer of Llama: hidden 8, 2 heads of 4, ffn 12, vocab 10. */
#define CONFIG                                                                                       \
    "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":8,\"num_attention_heads\":2," \
    "\"intermediate_size\":12,\"vocab_size\":10,\"tie_word_embeddings\":"
#define MISTRAL                                                                                       \
    "{\"num_hidden_layers\":1,\"hidden_size\":8,\"num_attention_heads\":2,\"num_key_value_heads\":2," \
    "\"head_dim\":4,\"intermediate_size\":12,\"vocab_size\":10}"
#define UNTIED CONFIG "false}"
#define TIED   CONFIG "true}"

static const struct tensor_spec inventory[] = {
    {"model.embed_tokens.weight", "F32", 10, 8, 4, NULL, 0, 0},
    {"model.layers.0.input_layernorm.weight", "F32", 0, 8, 4, NULL, 0, 0},
    {"model.layers.0.self_attn.q_proj.weight", "BF16", 8, 8, 2, NULL, 0, 0},
    {"model.layers.0.self_attn.k_proj.weight", "BF16", 8, 8, 2, NULL, 0, 0},
    {"model.layers.0.self_attn.v_proj.weight", "BF16", 8, 8, 2, NULL, 0, 0},
    {"model.layers.0.self_attn.o_proj.weight", "F16", 8, 8, 2, NULL, 0, 0},
    {"model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 0, 2, 4, NULL, 0, 0},
    {"model.layers.0.post_attention_layernorm.weight", "BF16", 0, 8, 2, NULL, 0, 0},
    {"model.layers.0.mlp.gate_proj.weight", "BF16", 12, 8, 2, NULL, 0, 0},
    {"model.layers.0.mlp.up_proj.weight", "BF16", 12, 8, 2, NULL, 0, 0},
    {"model.layers.0.mlp.down_proj.weight", "BF16", 8, 12, 2, NULL, 0, 0},
    {"model.norm.weight", "F32", 0, 8, 4, NULL, 0, 0},
    {"lm_head.weight", "BF16", 10, 8, 2, NULL, 0, 0},
};
#define N ((int)(sizeof inventory / sizeof inventory[0]))

static struct model_config m;

/* Puts the tensors into a folder and builds the map of one rank. */
struct attempt {
    struct checkpoint c;
    struct weight_map map;
    struct err e;
    int rc;
};

static void attempt(struct attempt *a, const char *config, const struct tensor_spec *spec, int n)
{
    struct folder f;
    struct shard s;
    struct tensor_spec filled[N + 4];
    uint64_t random = 3;
    memset(a, 0, sizeof *a);
    assert_true(n <= N + 4);
    for (int i = 0; i < n; i++) {
        filled[i] = spec[i];
        spec_fill(&filled[i], &random);
    }
    folder_make(&f);
    folder_write_tensors(&f, "model.safetensors", filled, n, 0);
    specs_free(filled, n);
    assert_int_equal(model_config_parse(&m, config, strlen(config), "config.json", &a->e), 0);
    if (checkpoint_open(&a->c, f.path, &a->e) != 0)
        fail_msg("%s", a->e.text);
    folder_remove(&f);
    shard_make(&s, &m, 0, 1);
    a->rc = weight_map_build(&a->map, &m, &s, &a->c, &a->e);
}

static void finish(struct attempt *a)
{
    weight_map_free(&a->map);
    checkpoint_close(&a->c);
}

/* Copies the inventory, with tensor `name` (if any) removed. */
static int copy_without(struct tensor_spec *to, const char *name)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        if (name == NULL || strcmp(inventory[i].name, name) != 0)
            to[n++] = inventory[i];
    return n;
}

static const char *source_name(const struct attempt *a, enum weight_id id)
{
    int slot = weight_map_find(&a->map, id, id < WEIGHT_FIRST_OF_LAYER ? -1 : 0);
    for (int i = 0; i < a->map.n_slices; i++)
        if (a->map.slice[i].slot == slot)
            return checkpoint_tensor_name(&a->c, a->map.slice[i].tensor);
    return "none";
}

static void complete(void **state)
{
    struct attempt a;
    char names[100];
    (void)state;
    attempt(&a, UNTIED, inventory, N);
    if (a.rc != 0)
        fail_msg("%s", a.e.text);
    assert_int_equal(a.map.n_slots, 3 + 6);
    assert_int_equal(a.map.n_slices, N - 1);
    assert_string_equal(source_name(&a, WEIGHT_HEAD), "lm_head.weight");
    assert_int_equal(a.map.slot[weight_map_find(&a.map, WEIGHT_EMBED, -1)].type, DTYPE_F32);
    assert_int_equal(a.map.slot[weight_map_find(&a.map, WEIGHT_OUT, 0)].type, DTYPE_F16);
    assert_int_equal(a.map.slot[weight_map_find(&a.map, WEIGHT_QKV, 0)].type, DTYPE_BF16);
    assert_int_equal(a.map.slot[weight_map_find(&a.map, WEIGHT_QKV, 0)].rows, 24);
    assert_int_equal(weight_map_find(&a.map, WEIGHT_QKV_BIAS, 0), -1);
    assert_int_equal(weight_unknown(&a.map, &m, &a.c, names, sizeof names), 0);
    for (int i = 1; i < a.map.n_slices; i++)
        assert_true(a.map.slice[i - 1].tensor <= a.map.slice[i].tensor);
    finish(&a);
}

static void without_prefix(void **state)
{
    struct attempt a;
    struct tensor_spec spec[N];
    (void)state;
    int n = copy_without(spec, NULL);
    for (int i = 0; i < n; i++)
        if (strncmp(spec[i].name, "model.", 6) == 0)
            memmove(spec[i].name, spec[i].name + 6, strlen(spec[i].name) - 5);
    attempt(&a, UNTIED, spec, n);
    if (a.rc != 0)
        fail_msg("%s", a.e.text);
    assert_string_equal(source_name(&a, WEIGHT_EMBED), "embed_tokens.weight");
    finish(&a);
    (void)snprintf(spec[1].name, sizeof spec[1].name, "model.layers.0.input_layernorm.weight"); /* all or none */
    attempt(&a, UNTIED, spec, n);
    expect_error(&a.e, ERR_INPUT, "\"layers.0.input_layernorm.weight\"|missing");
    finish(&a);
}

static void tied_heads(void **state)
{
    struct attempt a;
    struct tensor_spec spec[N];
    char names[100];
    (void)state;
    attempt(&a, TIED, inventory, N); /* the file's own head is ignored, silently */
    assert_int_equal(a.rc, 0);
    assert_false(weight_exists(&m, WEIGHT_HEAD, -1));
    assert_int_equal(weight_map_find(&a.map, WEIGHT_HEAD, -1), -1);
    assert_string_equal(source_name(&a, WEIGHT_EMBED), "model.embed_tokens.weight");
    assert_int_equal(weight_unknown(&a.map, &m, &a.c, names, sizeof names), 0);
    finish(&a);
    attempt(&a, TIED, spec, copy_without(spec, "lm_head.weight"));
    assert_int_equal(a.rc, 0);
    finish(&a);
    attempt(&a, TIED, spec, copy_without(spec, "model.embed_tokens.weight")); /* only the head: one parameter in HF */
    assert_int_equal(a.rc, 0);
    assert_string_equal(source_name(&a, WEIGHT_EMBED), "lm_head.weight");
    assert_int_equal(a.map.slot[0].type, DTYPE_BF16);
    finish(&a);
    attempt(&a, UNTIED, spec, copy_without(spec, "lm_head.weight"));
    expect_error(&a.e, ERR_INPUT, "/tmp/lockstep_test_|\"lm_head.weight\"|missing|tie_word_embeddings");
    finish(&a);
    attempt(&a, UNTIED, spec, copy_without(spec, "model.embed_tokens.weight"));
    expect_error(&a.e, ERR_INPUT, "\"model.embed_tokens.weight\"|missing");
    finish(&a);
}

static void every_tensor_is_needed(void **state)
{
    struct attempt a;
    struct tensor_spec spec[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        attempt(&a, UNTIED, spec, copy_without(spec, inventory[i].name));
        if (strstr(inventory[i].name, "inv_freq") != NULL) {
            assert_int_equal(a.rc, 0);
        } else {
            assert_int_equal(a.rc, -1);
            expect_error(&a.e, ERR_INPUT, "config.json|missing");
            expect_error(&a.e, ERR_INPUT, inventory[i].name);
            assert_null(a.map.slot);
        }
        finish(&a);
    }
}

/* Replaces one tensor: its name, dtype, rows, cols. */
static void bad_tensors(void **state)
{
    static const struct {
        struct tensor_spec with;
        enum err_code code;
        const char *needles;
    } table[] = {
        {{"model.embed_tokens.weight", "F32", 11, 8, 4, NULL, 0, 0}, ERR_INPUT, "[11, 8]|[10, 8]"},
        {{"model.embed_tokens.weight", "F32", 10, 9, 4, NULL, 0, 0}, ERR_INPUT, "[10, 9]|[10, 8]"},
        {{"model.embed_tokens.weight", "F32", 0, 80, 4, NULL, 0, 0}, ERR_INPUT, "[80]|[10, 8]"},
        {{"model.norm.weight", "F32", 1, 8, 4, NULL, 0, 0}, ERR_INPUT, "[1, 8]|[8]"},
        {{"model.layers.0.self_attn.k_proj.weight", "BF16", 4, 8, 2, NULL, 0, 0}, ERR_INPUT, "[4, 8]|[8, 8]"},
        {{"model.layers.0.mlp.gate_proj.weight", "BF16", 8, 12, 2, NULL, 0, 0}, ERR_INPUT, "[8, 12]|[12, 8]"},
        {{"model.layers.0.mlp.down_proj.weight", "BF16", 12, 8, 2, NULL, 0, 0}, ERR_INPUT, "[12, 8]|[8, 12]"},
        {{"lm_head.weight", "BF16", 9, 8, 2, NULL, 0, 0}, ERR_INPUT, "[9, 8]|[10, 8]"},
        {{"model.norm.weight", "I64", 0, 8, 8, NULL, 0, 0}, ERR_UNSUPPORTED, "I64|F32, F16 or BF16"},
        {{"model.norm.weight", "F64", 0, 8, 8, NULL, 0, 0}, ERR_UNSUPPORTED, "F64, expected F32, F16 or BF16"},
        {{"model.layers.0.mlp.down_proj.weight", "F8_E4M3", 8, 12, 1, NULL, 0, 0},
         ERR_UNSUPPORTED,
         "F8_E4M3 (quantised)|F32, F16 or BF16"},
        {{"model.layers.0.mlp.up_proj.weight", "F32", 12, 8, 4, NULL, 0, 0}, ERR_UNSUPPORTED, "F32|BF16|mlp_in"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct attempt a;
        struct tensor_spec spec[N];
        int n = copy_without(spec, NULL);
        for (int j = 0; j < n; j++)
            if (strcmp(spec[j].name, table[i].with.name) == 0)
                spec[j] = table[i].with;
        attempt(&a, UNTIED, spec, n);
        assert_int_equal(a.rc, -1);
        expect_error(&a.e, table[i].code, "/model.safetensors");
        expect_error(&a.e, table[i].code, table[i].with.name);
        expect_error(&a.e, table[i].code, table[i].needles);
        finish(&a);
    }
}

static void strangers(void **state)
{
    struct attempt a;
    struct tensor_spec spec[N + 4];
    char names[64];
    (void)state;
    int n = copy_without(spec, NULL);
    spec[n++] = (struct tensor_spec){"model.layers.0.self_attn.q_proj.bias", "I64", 0, 8, 8, NULL, 0, 0};
    spec[n++] = (struct tensor_spec){"zebra", "U8", 3, 3, 1, NULL, 0, 0};
    attempt(&a, UNTIED, spec, n); /* not needed, so their types do not matter */
    assert_int_equal(a.rc, 0);
    assert_int_equal(weight_unknown(&a.map, &m, &a.c, names, sizeof names), 2);
    assert_string_equal(names, "model.layers.0.self_attn.q_proj.bias, zebra");
    assert_int_equal(weight_unknown(&a.map, &m, &a.c, names, 10), 2);
    assert_string_equal(names, "zebra"); /* as many names as fit */
    finish(&a);
}

/* The language model in the folder of a multimodal model, under both names. */
static void wrapped(void **state)
{
    static const struct {
        const char *inside, *outside, *tower;
    } prefix[] = {{"language_model.model.", "language_model.", "vision_tower.norm.weight"},
                  {"model.language_model.", "", "model.multi_modal_projector.linear.weight"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct attempt a;
        struct tensor_spec spec[N + 4];
        char names[100];
        int n = copy_without(spec, NULL);
        for (int k = 0; k < n; k++) {
            bool inside = strncmp(spec[k].name, "model.", 6) == 0;
            (void)snprintf(spec[k].name, sizeof spec[k].name, "%s%.70s", inside ? prefix[i].inside : prefix[i].outside,
                           inventory[k].name + (inside ? 6 : 0));
        }
        spec[n] = (struct tensor_spec){"", "F32", 3, 3, 4, NULL, 0, 0};
        (void)snprintf(spec[n++].name, sizeof spec[0].name, "%s", prefix[i].tower);
        attempt(&a, "{\"model_type\":\"mistral3\",\"text_config\":" MISTRAL "}", spec, n);
        if (a.rc != 0)
            fail_msg("%s", a.e.text);
        assert_int_equal(weight_unknown(&a.map, &m, &a.c, names, sizeof names), 0);
        finish(&a);
    }
}

#define EXPERTS                                                                                        \
    "{\"model_type\":\"mixtral\",\"num_hidden_layers\":1,\"hidden_size\":8,\"num_attention_heads\":2," \
    "\"num_key_value_heads\":2,\"intermediate_size\":12,\"vocab_size\":10,\"num_local_experts\":2,"    \
    "\"num_experts_per_tok\":1}"

/* Copies the inventory with experts in place of the MLP, one by one or as one tensor; returns their number. */
static int copy_experts(struct tensor_spec *to, bool together)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        if (strstr(inventory[i].name, "mlp.") == NULL && strstr(inventory[i].name, "inv_freq") == NULL)
            to[n++] = inventory[i];
    const char *router = together ? "model.layers.0.mlp.gate.weight" : "model.layers.0.block_sparse_moe.gate.weight";
    to[n] = (struct tensor_spec){"", "BF16", 2, 8, 2, NULL, 0, 0};
    (void)snprintf(to[n++].name, sizeof to[0].name, "%s", router);
    if (together) {
        to[n++] = (struct tensor_spec){"model.layers.0.mlp.experts.gate_up_proj", "BF16", 24, 8, 2, NULL, 0, 2};
        to[n++] = (struct tensor_spec){"model.layers.0.mlp.experts.down_proj", "BF16", 8, 12, 2, NULL, 0, 2};
        return n;
    }
    for (int i = 0; i < 6; i++) {
        to[n] = (struct tensor_spec){"", "BF16", i % 3 == 1 ? 8 : 12, i % 3 == 1 ? 12 : 8, 2, NULL, 0, 0};
        (void)snprintf(to[n++].name, sizeof to[0].name, "model.layers.0.block_sparse_moe.experts.%d.w%d.weight", i / 3,
                       i % 3 + 1);
    }
    return n;
}

static void experts(void **state)
{
    struct attempt a;
    struct tensor_spec spec[N + 4];
    (void)state;
    for (int together = 0; together < 2; together++) {
        int n = copy_experts(spec, together);
        attempt(&a, EXPERTS, spec, n);
        if (a.rc != 0)
            fail_msg("%s", a.e.text);
        assert_string_equal(source_name(&a, WEIGHT_EXPERTS_OUT), spec[together ? n - 1 : n - 5].name);
        finish(&a);
        spec[n - 1].rows--;
        attempt(&a, EXPERTS, spec, n);
        expect_error(&a.e, ERR_INPUT, spec[n - 1].name);
        expect_error(&a.e, ERR_INPUT, together ? "[2, 7, 12]|[2, 8, 12]" : "[11, 8]|[12, 8]");
        finish(&a);
        attempt(&a, EXPERTS, spec, n - 1);
        expect_error(&a.e, ERR_INPUT, spec[n - 1].name);
        expect_error(&a.e, ERR_INPUT, "missing");
        finish(&a);
    }
    int n = copy_experts(spec, true);
    spec[n - 1].matrices = 3;
    attempt(&a, EXPERTS, spec, n);
    expect_error(&a.e, ERR_INPUT, "[3, 8, 12]|[2, 8, 12]");
    finish(&a);
}

/* Only rank 0 has biases of partial sums; a rank without heads has empty arrays of the right shape. */
static void slots_of_ranks(void **state)
{
    static const char *config = "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_embd\":12,\"n_head\":2,\"vocab_size\":9}";
    struct err e = {0};
    (void)state;
    assert_int_equal(model_config_parse(&m, config, strlen(config), "config.json", &e), 0);
    for (int rank = 0; rank < 3; rank++) {
        struct shard s;
        struct weight_map map;
        shard_make(&s, &m, rank, 3);
        assert_int_equal(weight_map_build(&map, &m, &s, NULL, &e), 0);
        const struct weight_slot *qkv = &map.slot[weight_map_find(&map, WEIGHT_QKV, 0)];
        const struct weight_slot *out = &map.slot[weight_map_find(&map, WEIGHT_OUT, 0)];
        const struct weight_slot *bias = &map.slot[weight_map_find(&map, WEIGHT_OUT_BIAS, 0)];
        const struct weight_slot *mlp_bias = &map.slot[weight_map_find(&map, WEIGHT_MLP_OUT_BIAS, 0)];
        int heads = rank < 2 ? 1 : 0;
        assert_true(qkv->rows == 18 * heads && qkv->cols == 12);
        assert_true(out->rows == 12 && out->cols == 6 * heads);
        assert_true(bias->rows == 1 && bias->cols == (rank == 0 ? 12 : 0));
        assert_true(mlp_bias->rows == 1 && mlp_bias->cols == (rank == 0 ? 12 : 0));
        assert_int_equal(map.slot[weight_map_find(&map, WEIGHT_POSITION, -1)].rows, 1024);
        weight_map_free(&map);
        weight_map_free(&map);
    }
}

static void names_of_roles(void **state)
{
    (void)state;
    for (enum weight_id id = WEIGHT_EMBED; id < WEIGHT_COUNT; id++) {
        assert_non_null(weight_name(id));
        for (enum weight_id before = WEIGHT_EMBED; before < id; before++)
            assert_string_not_equal(weight_name(id), weight_name(before));
    }
    assert_string_equal(weight_name(WEIGHT_MLP_IN), "mlp_in");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete),       cmocka_unit_test(without_prefix),
        cmocka_unit_test(tied_heads),     cmocka_unit_test(every_tensor_is_needed),
        cmocka_unit_test(bad_tensors),    cmocka_unit_test(strangers),
        cmocka_unit_test(slots_of_ranks), cmocka_unit_test(names_of_roles),
        cmocka_unit_test(experts),        cmocka_unit_test(wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
