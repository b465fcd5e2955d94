/* tests/unit/test_config_refused.c - config.json: refusals, and the names in their messages. */
#include "tests/unit/checkpoint_folder.h"
#include "tests/unit/config_texts.h"

#include "partition/families.h"
#include "partition/model.h"

static struct model_config m; /* too large for the stack: each layer takes kilobytes */

static void refused(void **state)
{
    static const struct {
        const char *text;
        enum err_code code;
        const char *needles;
    } table[] = {
        {"", ERR_INPUT, "JSON"},
        {"{\"model_type\":\"gpt2\"", ERR_INPUT, "JSON"},
        {"[1]", ERR_INPUT, "an array|an object"},
        {"{\"model_type\":\"gpt2\",\"model_type\":\"opt\"}", ERR_INPUT, "duplicate|model_type"},
        {"{}", ERR_INPUT, "model_type|lockstep inspect --help"},
        {"{\"model_type\":3}", ERR_INPUT, "model_type|an integer|a string"},
        {"{\"model_type\":\"mamba\"}", ERR_UNSUPPORTED,
         "model_type|mamba|expected one of the|lockstep inspect --help lists"},
        {"{\"model_type\":\"qwen3_next\"}", ERR_UNSUPPORTED, "model_type|qwen3_next|such as qwen2, qwen3"},
        {MIXTRAL "\"num_local_experts\":0}", ERR_INPUT, "num_local_experts|0|[1, 1024]"},
        {MIXTRAL "\"num_local_experts\":1025}", ERR_INPUT, "num_local_experts|1025|[1, 1024]"},
        {MIXTRAL "\"num_experts_per_tok\":9}", ERR_INPUT, "num_experts_per_tok|9|8 experts"},
        {MIXTRAL "\"num_local_experts\":1024,\"intermediate_size\":4194304}", ERR_UNSUPPORTED, "1024 experts|4194304"},
        {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1]}", ERR_INPUT, "no_rope_layers|of 1|36"},
        {"{\"model_type\":\"apertus\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2},\"hidden_act\":\"silu\"}",
         ERR_UNSUPPORTED, "hidden_act|silu|xielu"},
        {"{\"model_type\":\"hunyuan_v1_moe\",\"num_hidden_layers\":2,\"num_experts\":9,\"moe_topk\":[3,2]}",
         ERR_UNSUPPORTED, "moe_topk|a list of 2|the same number|all 2 layers"},
        {"{\"model_type\":\"hunyuan_v1_moe\",\"num_experts\":9,\"moe_topk\":[3]}", ERR_UNSUPPORTED,
         "moe_topk|a list of 1|all 32 layers"},
        {"{\"model_type\":\"qwen3_vl\",\"hidden_size\":64}", ERR_INPUT, "text_config|nothing|an object"},
        {LLAMA "\"rope_scaling\":{\"type\":\"mrope\"}}", ERR_UNSUPPORTED, "rope_type|mrope"},
        {"{\"model_type\":\"arcee\",\"hidden_act\":\"silu\"}", ERR_UNSUPPORTED, "hidden_act|silu|relu2"},
        {"{\"model_type\":\"phi\",\"qk_layernorm\":true}", ERR_UNSUPPORTED, "qk_layernorm"},
        {"{\"model_type\":\"falcon\",\"alibi\":true}", ERR_UNSUPPORTED, "alibi|bfloat16"},
        {"{\"model_type\":\"falcon\",\"num_ln_in_parallel_attn\":2}", ERR_INPUT,
         "num_ln_in_parallel_attn|2|expected 1"},
        {"{\"model_type\":\"gpt_neo\",\"num_layers\":23}", ERR_INPUT, "attention_types|24|23"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":3}", ERR_INPUT, "attention_types|of 0 layers|24"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[[[\"far\"],24]]}", ERR_UNSUPPORTED, "attention_types|far"},
        {"{\"model_type\":\"gpt_neo\",\"attention_types\":[[[\"local\"],99999999999]]}", ERR_INPUT,
         "attention_types|24"},
        {"{\"model_type\":\"gemma3_text\",\"use_bidirectional_attention\":true}", ERR_UNSUPPORTED,
         "use_bidirectional_attention"},
        {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"rope_type\":\"default\"}}", ERR_UNSUPPORTED,
         "rope_parameters|full_attention"},
        {"{\"model_type\":\"gemma3_text\",\"rope_parameters\":{\"full_attention\":{\"factor\":2,\"rope_type\":"
         "\"cubic\"}}}",
         ERR_UNSUPPORTED, "rope_parameters|full_attention|cubic"},
        {LLAMA "\"rope_parameters\":{\"full_attention\":{}}}", ERR_UNSUPPORTED, "rope_parameters|layer types"},
        {"{\"model_type\":\"gemma3\"}", ERR_INPUT, "text_config|nothing|an object"},
        {"{\"model_type\":\"gemma3\",\"text_config\":{\"head_dim\":0}}", ERR_INPUT, "text_config|head_dim|0"},
        {"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"llama\"}}", ERR_UNSUPPORTED,
         "text_config|llama|ministral3"},
        {"{\"model_type\":\"mistral3\",\"text_config\":{\"quantization_config\":{\"quant_method\":\"hqq\"}}}",
         ERR_UNSUPPORTED, "text_config|hqq"},
        {"{\"model_type\":\"cohere2\",\"sliding_window\":null}", ERR_UNSUPPORTED, "sliding_window|null"},
        {EXAONE "\"sliding_window_pattern\":null}", ERR_UNSUPPORTED, "sliding_window_pattern|null|letters L and G"},
        {EXAONE "\"sliding_window_pattern\":\"LLX\"}", ERR_INPUT, "sliding_window_pattern|LLX|letters L and G"},
        {EXAONE "\"sliding_window_pattern\":\"\"}", ERR_INPUT, "sliding_window_pattern|letters L and G"},
        {EXAONE "\"sliding_window_pattern\":0}", ERR_INPUT, "sliding_window_pattern|0|[1, 1024]"},
        {EXAONE "\"sliding_window_pattern\":\"LG\",\"sliding_window\":0}", ERR_INPUT, "sliding_window|0|[1, "},
        {EXAONE "\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"],\"sliding_window\":null}", ERR_INPUT,
         "sliding_window|missing"},
        {"{\"model_type\":\"olmo\",\"clip_qkv\":8.0}", ERR_UNSUPPORTED, "clip_qkv|is 8,|expected null"},
        {"{\"model_type\":\"olmo\",\"clip_qkv\":true}", ERR_INPUT, "clip_qkv|a boolean|a number"},
        {"{\"model_type\":\"iquestcoder\",\"clip_qkv\":8.0}", ERR_UNSUPPORTED, "clip_qkv|is 8,|expected null"},
        {"{\"model_type\":\"iquestcoder\",\"use_sliding_window\":true}", ERR_UNSUPPORTED,
         "use_sliding_window|iquestcoder"},
        {V2 "\"norm_topk_prob\":true}", ERR_UNSUPPORTED, "norm_topk_prob|true|deepseek_v2"},
        {V2 "\"mlp_bias\":true}", ERR_UNSUPPORTED, "mlp_bias|deepseek_v2"},
        {V2 "\"topk_method\":\"noaux_tc\"}", ERR_UNSUPPORTED, "topk_method|noaux_tc|group_limited_greedy"},
        {V2 "\"scoring_func\":\"sigmoid\"}", ERR_UNSUPPORTED, "scoring_func|sigmoid|softmax"},
        {V2 "\"topk_method\":\"group_limited_greedy\",\"n_group\":3}", ERR_INPUT,
         "n_group|is 3|64 experts|one in each"},
        {"{\"model_type\":\"deepseek_v2\"}", ERR_INPUT, "num_experts_per_tok|missing"},
        {V3 "\"scoring_func\":\"softmax\"}", ERR_UNSUPPORTED, "scoring_func|softmax|sigmoid"},
        {V3 "\"topk_method\":\"greedy\"}", ERR_UNSUPPORTED, "topk_method|greedy|noaux_tc"},
        {V3 "\"moe_layer_freq\":2}", ERR_UNSUPPORTED, "moe_layer_freq"},
        {V3 "\"kv_lora_rank\":0}", ERR_INPUT, "kv_lora_rank|0|[1, 1024]"},
        {V3 "\"kv_lora_rank\":1024}", ERR_INPUT, "1088 dimensions|[1, 1024]"},
        {V3 "\"qk_rope_head_dim\":5}", ERR_INPUT, "5 of the 5|even"},
        {V3 "\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED, "partial_rotary_factor|0.5|expected 1"},
        {V3 "\"rope_scaling\":{\"type\":\"yarn\",\"mscale_all_dim\":1}}", ERR_INPUT, "rope_scaling|factor|missing"},
        {LITE "\"mlp_layer_types\":[\"dense\"]}", ERR_INPUT, "mlp_layer_types|of 1|47"},
        {LITE "\"num_hidden_layers\":1,\"mlp_layer_types\":[\"moe\"]}", ERR_UNSUPPORTED,
         "mlp_layer_types|[0]|moe|sparse"},
        {LITE "\"first_k_dense_replace\":2}", ERR_UNSUPPORTED, "first_k_dense_replace|mlp_layer_types"},
        {L4 "\"num_experts_per_tok\":2}", ERR_UNSUPPORTED, "num_experts_per_tok|2|expected 1"},
        {L4 "\"no_rope_layers\":[1,0]}", ERR_INPUT, "no_rope_layers|of 2|48 numbers"},
        {L4 "\"no_rope_layers\":7}", ERR_INPUT, "no_rope_layers|an integer"},
        {L4 "\"num_hidden_layers\":1,\"no_rope_layers\":[2]}", ERR_INPUT, "no_rope_layers|[0]|0 or 1"},
        {L4 "\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"]}", ERR_UNSUPPORTED,
         "layer_types|[0]|sliding_attention|chunked_attention"},
        {L4 "\"attention_chunk_size\":0}", ERR_INPUT, "attention_chunk_size|0|[1, 1073741824]"},
        {L4 "\"moe_layers\":[\"a\"]}", ERR_INPUT, "moe_layers|[0]|a string"},
        {HYBRID "\"position_embedding_type\":\"rope\"}", ERR_UNSUPPORTED, "layer_types|missing|Mamba-2"},
        {HYBRID "\"layer_types\":[\"attention\"]}", ERR_INPUT, "layer_types|of 1|32"},
        {HYBRID "\"num_hidden_layers\":2,\"layer_types\":[\"attention\",\"mamba\"]}", ERR_UNSUPPORTED,
         "layer_types|[1]|mamba|expected attention|Mamba-2"},
        {HYBRID "\"num_hidden_layers\":1,\"layer_types\":[\"attention\"],\"position_embedding_type\":\"alibi\"}",
         ERR_UNSUPPORTED, "position_embedding_type|alibi|nope"},
        {HYBRID "\"num_hidden_layers\":1,\"layer_types\":[\"attention\"],\"normalization_function\":\"layernorm\"}",
         ERR_UNSUPPORTED, "normalization_function|layernorm|rmsnorm"},
        {ERNIE "\"use_bias\":true}", ERR_UNSUPPORTED, "use_bias|true|ernie4_5_moe"},
        {ERNIE "\"moe_layer_interval\":0}", ERR_INPUT, "moe_layer_interval|0|[1, 1024]"},
        {"{\"model_type\":\"solar_open\",\"first_k_dense_replace\":1}", ERR_UNSUPPORTED,
         "first_k_dense_replace|solar_open"},
        {"{\"model_type\":\"solar_open\",\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED,
         "partial_rotary_factor|0.5|expected 1"},
        {"{\"model_type\":\"seed_oss\",\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED,
         "partial_rotary_factor|0.5|as a whole"},
        {"{\"model_type\":\"qwen3\",\"rope_parameters\":{\"rope_theta\":1e4,\"partial_rotary_factor\":0.25}}",
         ERR_UNSUPPORTED, "partial_rotary_factor|0.25|as a whole"},
        {"{\"model_type\":\"solar_open\",\"use_qk_norm\":true}", ERR_UNSUPPORTED, "use_qk_norm|solar_open"},
        {EXAMOE "\"sliding_window_pattern\":\"LX\"}", ERR_INPUT, "sliding_window_pattern|LX|letters L and G"},
        {EXAMOE "\"topk_method\":\"greedy\"}", ERR_UNSUPPORTED, "topk_method|greedy|noaux_tc"},
        {DOTS "\"n_shared_experts\":2,\"scoring_func\":\"softmax\"}", ERR_UNSUPPORTED, "scoring_func|softmax|sigmoid"},
        {DOTS "\"n_shared_experts\":2,\"topk_method\":\"greedy\"}", ERR_UNSUPPORTED, "topk_method|greedy|noaux_tc"},
        {DOTS "\"moe_intermediate_size\":1408}", ERR_INPUT, "n_shared_experts|missing|[1, 16]"},
        {"{\"model_type\":\"dots1\"}", ERR_INPUT, "n_routed_experts|missing"},
        {GLM "\"n_group\":3}", ERR_INPUT, "n_group|is 3|128 experts"},
        {GLM "\"n_group\":128}", ERR_INPUT, "n_group|128|[1, 32]"},
        {GLM "\"n_group\":8,\"topk_group\":9}", ERR_INPUT, "topk_group|9"},
        {GLM "\"n_group\":32,\"topk_group\":1}", ERR_INPUT, "topk_group|1|8 experts"},
        {"{\"model_type\":\"gpt_oss\",\"swiglu_limit\":5}", ERR_UNSUPPORTED, "swiglu_limit|5|7"},
        {"{\"model_type\":\"olmoe\",\"clip_qkv\":8.5}", ERR_UNSUPPORTED, "clip_qkv|8.5|expected null"},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":3}", ERR_INPUT, "mlp_only_layers|an integer|an array"},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[1,\"a\"]}", ERR_INPUT, "mlp_only_layers|[1]|a string"},
        {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":0}", ERR_INPUT, "decoder_sparse_step|0|[1, 1024]"},
        {"{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\"}}", ERR_UNSUPPORTED,
         "model_type|llava|text_config"},
        {"{\"architectures\":[\"Qwen2AudioForCausalLM\"]}", ERR_UNSUPPORTED, "architectures|Qwen2AudioForCausalLM"},
        {LLAMA "\"quantization_config\":{\"quant_method\":\"aqlm\",\"bits\":4}}", ERR_UNSUPPORTED,
         "quantization_config|aqlm|fp8, fbgemm_fp8|unquantised repository"},
        {LLAMA "\"quantization\":{\"bits\":4}}", ERR_UNSUPPORTED, "quantization|unquantised repository"},
        {LLAMA "\"torch_dtype\":\"float64\"}", ERR_UNSUPPORTED, "torch_dtype|float64|bfloat16"},
        {LLAMA "\"hidden_act\":\"mish\"}", ERR_UNSUPPORTED, "hidden_act|mish|silu"},
        {LLAMA "\"hidden_act\":1}", ERR_INPUT, "hidden_act|an integer|a string"},
        {"{\"model_type\":\"gpt2\",\"add_cross_attention\":true}", ERR_UNSUPPORTED, "add_cross_attention"},
        {LLAMA "\"num_attention_heads\":0}", ERR_INPUT, "num_attention_heads|0|[1, 65536]"},
        {LLAMA "\"num_attention_heads\":-3}", ERR_INPUT, "num_attention_heads|-3|[1, 65536]"},
        {LLAMA "\"num_attention_heads\":true}", ERR_INPUT, "num_attention_heads|a boolean|an integer"},
        {LLAMA "\"num_attention_heads\":32.5}", ERR_INPUT, "num_attention_heads|an integer"},
        {LLAMA "\"num_attention_heads\":7}", ERR_INPUT, "hidden_size|4096|7"},
        {LLAMA "\"num_key_value_heads\":0}", ERR_INPUT, "num_key_value_heads|0|[1, 65536]"},
        {LLAMA "\"num_key_value_heads\":5}", ERR_INPUT, "num_key_value_heads|5|32"},
        {LLAMA "\"num_key_value_heads\":64}", ERR_INPUT, "num_key_value_heads|64|32"},
        {LLAMA "\"hidden_size\":0}", ERR_INPUT, "hidden_size|0|[1, 1048576]"},
        {LLAMA "\"hidden_size\":" BIG "}", ERR_INPUT, "hidden_size|" BIG "|[1, 1048576]"},
        {LLAMA "\"num_hidden_layers\":0}", ERR_INPUT, "num_hidden_layers|0|[1, 1024]"},
        {LLAMA "\"num_hidden_layers\":1025}", ERR_INPUT, "num_hidden_layers|1025|[1, 1024]"},
        {LLAMA "\"vocab_size\":0}", ERR_INPUT, "vocab_size|0|[1, 16777216]"},
        {LLAMA "\"vocab_size\":" BIG "}", ERR_INPUT, "vocab_size|" BIG},
        {LLAMA "\"vocab_size\":99999999999999999999}", ERR_INPUT, "vocab_size|a real number|[1, 16777216]"},
        {LLAMA "\"intermediate_size\":0}", ERR_INPUT, "intermediate_size|0|[1, 4194304]"},
        {LLAMA "\"intermediate_size\":4194305}", ERR_INPUT, "intermediate_size|4194305|[1, 4194304]"},
        {LLAMA "\"head_dim\":2048}", ERR_INPUT, "head_dim|2048|[1, 1024]"},
        {LLAMA "\"head_dim\":0}", ERR_INPUT, "head_dim|0|[1, 1024]"},
        {LLAMA "\"head_dim\":7}", ERR_INPUT, "7|rotated|even"},
        {LLAMA "\"head_dim\":1024}", ERR_INPUT, "1024|rotated|[2, 512]"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":4096,\"n_head\":2}", ERR_INPUT, "2048 dimensions|[1, 1024]"},
        {LLAMA "\"max_position_embeddings\":0}", ERR_INPUT, "max_position_embeddings|0|[1, 1073741824]"},
        {LLAMA "\"max_position_embeddings\":" BIG "}", ERR_INPUT, "max_position_embeddings|" BIG},
        {LLAMA "\"rms_norm_eps\":-1e-5}", ERR_INPUT, "rms_norm_eps|-1e-05|[0, 1]"},
        {LLAMA "\"rms_norm_eps\":\"1e-5\"}", ERR_INPUT, "rms_norm_eps|a string|a number"},
        {LLAMA "\"rms_norm_eps\":NaN}", ERR_INPUT, "JSON"},
        {LLAMA "\"rms_norm_eps\":1e999}", ERR_INPUT, "JSON"},
        {LLAMA "\"tie_word_embeddings\":1}", ERR_INPUT, "tie_word_embeddings|an integer|true or false"},
        {LLAMA "\"rope_theta\":0}", ERR_INPUT, "rope_theta|0|[2, 1e+15]"},
        {SCALING "3}", ERR_INPUT, "rope_scaling|an integer|an object"},
        {SCALING "{\"type\":\"quadratic\"}}", ERR_UNSUPPORTED, "rope_scaling|quadratic|yarn"},
        {SCALING "{\"type\":\"mrope\"}}", ERR_UNSUPPORTED, "rope_scaling|mrope|longrope"},
        {SCALING "{\"type\":7}}", ERR_INPUT, "rope_scaling|type|an integer|a string"},
        {SCALING "{\"type\":\"linear\"}}", ERR_INPUT, "rope_scaling|factor|missing|[1, 1e+06]"},
        {SCALING "{\"type\":\"linear\",\"factor\":0}}", ERR_INPUT, "rope_scaling|factor|0|[1, 1e+06]"},
        {SCALING "{\"type\":\"linear\",\"factor\":\"2\"}}", ERR_INPUT, "rope_scaling|factor|a string"},
        {SCALING "{\"type\":\"dynamic\",\"factor\":0.5}}", ERR_INPUT, "rope_scaling|factor|0.5|[1, 1e+06]"},
        {LLAMA "\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}", ERR_INPUT, "dynamic|4|2"},
        {SCALING "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}}", ERR_INPUT,
         "rope_scaling|original_max_position_embeddings|missing"},
        {SCALING "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":3,"
                 "\"original_max_position_embeddings\":8192}}",
         ERR_INPUT, "rope_scaling|high_freq_factor|low_freq_factor"},
        {SCALING "{\"rope_type\":\"yarn\"}}", ERR_INPUT, "rope_scaling|factor|missing"},
        {SCALING "{\"rope_type\":\"longrope\",\"long_factor\":[1]}}", ERR_INPUT, "short_factor|nothing|64 numbers"},
        {LLAMA "\"head_dim\":2,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[0]}}",
         ERR_INPUT, "long_factor|[0]|0|1e-06"},
        {LLAMA
         "\"head_dim\":2,\"rope_scaling\":{\"rope_type\":\"longrope\",\"short_factor\":[\"a\"],\"long_factor\":[1]}}",
         ERR_INPUT, "short_factor|[0]|a string"},
        {SCALING "{\"type\":\"linear\",\"factor\":4},\"rope_parameters\":{\"rope_theta\":500000}}", ERR_UNSUPPORTED,
         "\"rope_scaling\" takes the place|rope_parameters|rope_theta"},
        {"{\"model_type\":\"olmo3\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4},\"rope_parameters\":{"
         "\"full_attention\":{}}}",
         ERR_UNSUPPORTED, "\"rope_scaling\" stands beside|rope_parameters|one of the two"},
        {LLAMA "\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{}}}", ERR_UNSUPPORTED,
         "rope_parameters|layer types"},
        {"{\"model_type\":\"gptj\",\"rotary_dim\":63}", ERR_INPUT, "rotary_dim|63|even"},
        {"{\"model_type\":\"gptj\",\"rotary_dim\":258}", ERR_INPUT, "rotary_dim|258|256"},
        {"{\"model_type\":\"gptj\",\"rotary_dim\":null}", ERR_UNSUPPORTED, "rotary_dim|null"},
        {"{\"model_type\":\"gpt_neox\",\"rotary_pct\":1.5}", ERR_INPUT, "rotary_pct|1.5|[0, 1]"},
        {"{\"model_type\":\"gpt_neox\",\"rotary_pct\":0.01}", ERR_INPUT, "0 of the 96|even"},
        {"{\"model_type\":\"mistral\",\"sliding_window\":0}", ERR_INPUT, "sliding_window|0|[1, 1073741824]"},
        {"{\"model_type\":\"qwen2\",\"layer_types\":[\"full_attention\"]}", ERR_INPUT, "layer_types|of 1|32"},
        {"{\"model_type\":\"qwen2\",\"num_hidden_layers\":1,\"layer_types\":[\"chunked_attention\"]}", ERR_UNSUPPORTED,
         "layer_types|[0]|chunked_attention|full_attention"},
        {"{\"model_type\":\"qwen2\",\"num_hidden_layers\":1,\"layer_types\":[\"sliding_attention\"],"
         "\"sliding_window\":null}",
         ERR_INPUT, "sliding_window|missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct err e = {0};
        if (model_config_parse(&m, table[i].text, strlen(table[i].text), "dir/config.json", &e) != -1)
            fail_msg("accepted: %s", table[i].text);
        expect_error(&e, table[i].code, "dir/config.json");
        expect_error(&e, table[i].code, table[i].needles);
    }
}

/* Long hostile strings still give one line that fits, even with control characters. */
static void long_strings(void **state)
{
    static char text[6000], name[4000];
    struct err e = {0};
    (void)state;
    memset(name, 'x', sizeof name - 1);
    (void)snprintf(text, sizeof text, "{\"model_type\":\"a\\n\\u001b%s\"}", name);
    assert_int_equal(model_config_parse(&m, text, strlen(text), "config.json", &e), -1);
    expect_error(&e, ERR_UNSUPPORTED, "model_type|a??xxx|expected one of the");
    memset(&e, 0, sizeof e);
    (void)snprintf(text, sizeof text, LLAMA "\"quantization_config\":{\"quant_method\":\"%s\"}}", name);
    assert_int_equal(model_config_parse(&m, text, strlen(text), "config.json", &e), -1);
    expect_error(&e, ERR_UNSUPPORTED, "quantization_config|unquantised");
}

static void folders(void **state)
{
    struct folder f;
    struct err e = {0};
    char path[100];
    (void)state;
    folder_make(&f);
    (void)snprintf(path, sizeof path, "%s/config.json", f.path);
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_IO, path);
    memset(&e, 0, sizeof e);
    assert_int_equal(model_config_read(&m, "/nonexistent/model", &e), -1);
    expect_error(&e, ERR_IO, "/nonexistent/model|No such file");
    memset(&e, 0, sizeof e);
    folder_write_text(&f, "config.json", "{\"model_type\":\"opt\",\"num_attention_heads\":0}");
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_INPUT, path);
    memset(&e, 0, sizeof e);
    assert_int_equal(model_config_read(&m, path, &e), -1);
    expect_error(&e, ERR_INPUT, "config.json: is a file|folder");
    memset(&e, 0, sizeof e);
    folder_write_text(&f, "config.json", "{\"model_type\":\"opt\"}");
    assert_int_equal(model_config_read(&m, f.path, &e), 0);
    assert_string_equal(m.model_type, "opt");
    assert_int_equal(remove(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0); /* opening it must not block */
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_INPUT, "config.json|not a regular file");
    memset(&e, 0, sizeof e);
    assert_int_equal(remove(path), 0);
    folder_write_text(&f, "model.gguf", "GGUF");
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_UNSUPPORTED, "model.gguf|unquantised repository");
    folder_remove(&f);
}

/* All names fit into the list of messages, or those that resemble a name. */
static void family_list(void **state)
{
    char names[FAMILY_NAMES_BYTES], some[100];
    int n = 0;
    (void)state;
    int n_all = family_names(names, sizeof names, NULL);
    for (char *rest = names, *name; (name = strtok_r(rest, ", ", &rest)) != NULL; n++) {
        assert_non_null(family_find(name));
        assert_string_equal(family_find(name)->model_type, name);
        assert_true(strlen(name) < sizeof m.model_type);
    }
    assert_int_equal(n, n_all); /* all names fit */
    assert_true(n >= 50);
    assert_int_equal(family_names(some, sizeof some, "gpt_neo"), family_names(some, sizeof some, "gpt_x"));
    assert_string_equal(some, "gpt_neox, gpt_oss, gpt_neo");
    assert_int_equal(family_names(some, 20, "gpt_x"), 3); /* what fits */
    assert_string_equal(some, "gpt_neox, gpt_oss");
    assert_int_equal(family_names(some, sizeof some, "zzz"), 0);
    assert_string_equal(some, "");
    assert_null(family_find("bert"));
    assert_ptr_equal(family_of_architecture("GPTNeoXForCausalLM"), &family_gpt_neox);
    assert_ptr_equal(family_of_architecture("GPTNeoForCausalLM"), &family_gpt_neo);
    assert_ptr_equal(family_of_architecture("Gemma3ForCausalLM"), &family_gemma3_text);
    assert_ptr_equal(family_of_architecture("Gemma3ForConditionalGeneration"), &family_gemma3);
    assert_null(family_of_architecture("BertForMaskedLM"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused),
        cmocka_unit_test(long_strings),
        cmocka_unit_test(folders),
        cmocka_unit_test(family_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
