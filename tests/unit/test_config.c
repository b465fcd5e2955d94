/* tests/unit/test_config.c - config.json: spellings, defaults of the classes, switches, and what is refused by name. */
#include "tests/unit/checkpoint_folder.h"

#include "partition/families.h"
#include "partition/model.h"

#include <math.h>

static struct model_config m, other; /* its layers take kilobytes each: not on the stack */

#define V2   "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6,"
#define V3   "{\"model_type\":\"deepseek_v3\","
#define L4   "{\"model_type\":\"llama4_text\","
#define LITE "{\"model_type\":\"glm4_moe_lite\","

static void parse(struct model_config *to, const char *text)
{
    struct err e = {0};
    if (model_config_parse(to, text, strlen(text), "config.json", &e) != 0)
        fail_msg("%s: %s", text, e.text);
}

/* The same bytes, thus the same model. */
static void expect_same(const char *left, const char *right)
{
    parse(&m, left);
    parse(&other, right);
    if (memcmp(&m, &other, sizeof m) != 0)
        fail_msg("not the same: %s and %s", left, right);
}

static void spellings_agree(void **state)
{
    (void)state;
    expect_same("{\"model_type\":\"gpt2\",\"n_embd\":64,\"n_layer\":3,\"n_head\":4,\"n_positions\":100}",
                "{\"architectures\":[\"GPT2LMHeadModel\"],\"hidden_size\":64,\"num_hidden_layers\":3,"
                "\"num_attention_heads\":4,\"max_position_embeddings\":100,\"n_inner\":null}");
    expect_same("{\"model_type\":\"gptj\",\"n_embd\":256,\"n_layer\":3,\"n_head\":4,\"torch_dtype\":\"float16\"}",
                "{\"model_type\":\"gptj\",\"hidden_size\":256,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
                "\"dtype\":\"float16\",\"rotary_dim\":64}");
    expect_same("{\"model_type\":\"bloom\",\"n_embed\":64,\"n_layer\":3,\"num_attention_heads\":4}",
                "{\"model_type\":\"bloom\",\"hidden_size\":64,\"num_hidden_layers\":3,\"n_head\":4}");
    expect_same("{\"model_type\":\"gpt_neox\",\"rotary_pct\":0.5,\"rotary_emb_base\":20000}",
                "{\"model_type\":\"gpt_neox\",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":20000.0,"
                "\"partial_rotary_factor\":0.5}}");
    expect_same("{\"model_type\":\"llama\",\"num_key_value_heads\":null,\"rope_scaling\":null,\"head_dim\":null}",
                "{\"model_type\":\"llama\",\"num_key_value_heads\":32,\"head_dim\":128,\"hidden_act\":\"swish\"}");
    expect_same("{\"architectures\":[\"Qwen2ForCausalLM\"]}", "{\"model_type\":\"qwen2\",\"torch_dtype\":null}");
    expect_same("{\"architectures\":[\"LlamaForCausalLM\"]}", "{\"model_type\":\"llama\",\"vocab_size\":32000.0}");
}

static void defaults_of_gpt2_and_gptj(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"gpt2\"}");
    assert_int_equal(m.n_layers, 12);
    assert_int_equal(m.hidden, 768);
    assert_int_equal(m.n_heads, 12);
    assert_int_equal(m.n_kv_heads, 12);
    assert_int_equal(m.head_dim, 64);
    assert_int_equal(m.ffn, 3072);
    assert_int_equal(m.vocab, 50257);
    assert_int_equal(m.max_positions, 1024);
    assert_int_equal(m.norm, NORM_LAYER);
    assert_int_equal(m.activation, ACTIVATION_GELU_TANH);
    assert_int_equal(m.position, POSITION_LEARNED);
    assert_int_equal(m.dtype, DTYPE_F32);
    assert_true(m.tied_head && m.positions_end && m.final_norm && m.qkv_bias && m.out_bias && m.mlp_bias &&
                m.norm_bias);
    assert_false(m.head_bias || m.parallel_residual || m.gated_mlp || m.post_norm || m.embed_norm);
    assert_true(m.norm_eps == 1e-5f && m.attention_scale == 0.125f);
    assert_true(model_attention_scale(&m, 5) == 0.125f);
    parse(&m, "{\"model_type\":\"gpt2\",\"scale_attn_weights\":false,\"scale_attn_by_inverse_layer_idx\":true,"
              "\"reorder_and_upcast_attn\":true,\"n_ctx\":77,\"n_inner\":5}");
    assert_true(model_attention_scale(&m, 0) == 1.0f && model_attention_scale(&m, 3) == 0.25f);
    assert_int_equal(m.max_positions, 77);
    assert_int_equal(m.ffn, 5);
    parse(&m, "{\"model_type\":\"gptj\"}");
    assert_int_equal(m.hidden, 4096);
    assert_int_equal(m.head_dim, 256);
    assert_int_equal(m.vocab, 50400);
    assert_int_equal(m.ffn, 16384);
    assert_int_equal(m.rope.layout, ROPE_INTERLEAVED);
    assert_int_equal(m.rope.dims, 64);
    assert_true(m.parallel_residual && m.shared_norm && m.head_bias && m.mlp_bias && m.positions_end);
    assert_false(m.tied_head || m.qkv_bias || m.out_bias);
}

static void defaults_of_neox_opt_bloom(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"gpt_neox\"}");
    assert_int_equal(m.n_layers, 44);
    assert_int_equal(m.hidden, 6144);
    assert_int_equal(m.rope.dims, 24);
    assert_int_equal(m.activation, ACTIVATION_GELU);
    assert_true(m.parallel_residual && m.qkv_bias && m.out_bias && !m.shared_norm && !m.tied_head && !m.positions_end);
    parse(&m, "{\"model_type\":\"gpt_neox\",\"hidden_act\":\"gelu_fast\",\"attention_bias\":false,"
              "\"use_parallel_residual\":false}");
    assert_int_equal(m.activation, ACTIVATION_GELU_TANH);
    assert_false(m.parallel_residual || m.qkv_bias || m.out_bias);
    parse(&m, "{\"model_type\":\"opt\"}");
    assert_int_equal(m.position_offset, 2);
    assert_int_equal(m.embed_dim, 768);
    assert_int_equal(m.activation, ACTIVATION_RELU);
    assert_true(m.final_norm && !m.post_norm && m.tied_head && m.positions_end && m.norm_affine);
    parse(&m,
          "{\"model_type\":\"opt\",\"do_layer_norm_before\":false,\"word_embed_proj_dim\":512,\"enable_bias\":false,"
          "\"layer_norm_elementwise_affine\":false}");
    assert_int_equal(m.embed_dim, 512);
    assert_true(m.post_norm && !m.final_norm && !m.qkv_bias && !m.mlp_bias && !m.norm_affine);
    assert_true(weight_exists(&m, WEIGHT_PROJECT_IN, -1) && weight_exists(&m, WEIGHT_PROJECT_OUT, -1));
    assert_false(weight_exists(&m, WEIGHT_ATTN_NORM, 0) || weight_exists(&m, WEIGHT_FINAL_NORM, -1) ||
                 weight_exists(&m, WEIGHT_HEAD, -1));
    parse(&m, "{\"model_type\":\"opt\",\"_remove_final_layer_norm\":true}");
    assert_false(m.final_norm);
    parse(&m, "{\"model_type\":\"bloom\",\"apply_residual_connection_post_layernorm\":true,\"seq_length\":5}");
    assert_int_equal(m.max_positions, 0);
    assert_int_equal(m.position, POSITION_ALIBI);
    assert_int_equal(m.ffn, 256);
    assert_true(m.residual_is_normed && m.embed_norm && m.tied_head);
}

static void defaults_of_llama_and_kin(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"torch_dtype\":\"bfloat16\"}");
    assert_int_equal(m.n_kv_heads, 32);
    assert_int_equal(m.ffn, 11008);
    assert_int_equal(m.dtype, DTYPE_BF16);
    assert_int_equal(m.norm, NORM_RMS);
    assert_true(m.norm_eps == 1e-6f && m.gated_mlp && !m.tied_head && !m.qkv_bias && !m.norm_bias && !m.mlp_bias);
    assert_int_equal(m.layer[0].window, 0);
    parse(&m, "{\"model_type\":\"mistral\"}");
    assert_int_equal(m.n_kv_heads, 8);
    assert_int_equal(m.layer[0].window, 4096);
    assert_int_equal(m.layer[31].window, 4096);
    assert_int_equal(m.layer[32].window, 0);
    parse(&m, "{\"model_type\":\"mistral\",\"sliding_window\":null,\"head_dim\":160,\"num_key_value_heads\":null}");
    assert_int_equal(m.layer[0].window, 0);
    assert_int_equal(m.head_dim, 160);
    assert_int_equal(m.n_kv_heads, 32);
    parse(&m, "{\"model_type\":\"qwen2\",\"sliding_window\":100}");
    assert_int_equal(m.layer[31].window, 0);
    assert_true(m.qkv_bias && !m.out_bias);
    parse(&m, "{\"model_type\":\"qwen2\",\"sliding_window\":100,\"use_sliding_window\":true}");
    assert_int_equal(m.layer[27].window, 0);
    assert_int_equal(m.layer[28].window, 100);
    parse(&m, "{\"model_type\":\"qwen3\",\"sliding_window\":9,\"num_hidden_layers\":3,\"layer_types\":["
              "\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}");
    assert_int_equal(m.layer[0].window, 9);
    assert_int_equal(m.layer[1].window, 0);
    assert_int_equal(m.layer[2].window, 9);
    assert_int_equal(m.head_dim, 128);
    assert_true(m.qk_norm && !m.qkv_bias);
    parse(&m, "{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"num_attention_heads\":16,"
              "\"num_key_value_heads\":8,\"attention_bias\":true}");
    assert_int_equal(m.head_dim, 128);
    assert_true(m.qkv_bias && m.out_bias && m.attention_scale == (float)(1 / sqrt(128)));
}

static void defaults_of_further_kin(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"phi3\"}");
    assert_true(m.n_kv_heads == 32 && m.norm_eps == 1e-5f && m.layer[0].window == 0 && m.rope.dims == 96);
    parse(&m, "{\"model_type\":\"phi3\",\"sliding_window\":2047,\"partial_rotary_factor\":0.75}");
    assert_true(m.layer[31].window == 2047 && m.rope.dims == 72);
    parse(&m, "{\"model_type\":\"glm\"}");
    assert_true(m.rope.layout == ROPE_INTERLEAVED && m.rope.dims == 64 && m.head_dim == 128 && m.n_kv_heads == 2);
    assert_true(m.norm_eps == 1.5625e-7f && m.qkv_bias && !m.out_bias);
    parse(&m, "{\"model_type\":\"starcoder2\"}");
    assert_true(m.norm == NORM_LAYER && m.norm_bias && m.norm_eps == 1e-5f && !m.gated_mlp && m.tied_head);
    assert_true(m.qkv_bias && m.out_bias && m.mlp_bias && m.activation == ACTIVATION_GELU_TANH);
    parse(&m, "{\"model_type\":\"stablelm\"}");
    assert_true(m.norm == NORM_LAYER && m.norm_bias && m.gated_mlp && m.rope.dims == 20 && !m.qkv_bias);
    assert_true(!m.parallel_residual && !m.tied_head);
    parse(&m, "{\"model_type\":\"stablelm\",\"use_parallel_residual\":true}");
    assert_true(m.parallel_residual && m.shared_norm && !weight_exists(&m, WEIGHT_MLP_NORM, 0));
    parse(&m, "{\"model_type\":\"stablelm\",\"qk_layernorm\":true}");
    assert_true(m.qk_norm && m.qk_norm_each && !m.qk_norm_row);
    parse(&m, "{\"model_type\":\"smollm3\",\"sliding_window\":99}");
    assert_true(m.tied_head && m.n_kv_heads == 4 && fabsf(m.rope.inv_freq[1] - powf(2e6f, -2.0f / 128)) < 1e-6f);
    for (int i = 0; i < m.n_layers; i++)
        assert_true(m.layer[i].unrotated == (i % 4 == 3) && m.layer[i].window == 0);
    parse(&m, "{\"model_type\":\"smollm3\",\"num_hidden_layers\":2,\"no_rope_layers\":[0,1],\"sliding_window\":99,"
              "\"use_sliding_window\":true}");
    assert_true(m.layer[0].unrotated && m.layer[0].window == 99 && !m.layer[1].unrotated && m.layer[1].window == 0);
    parse(&m, "{\"model_type\":\"ministral\",\"num_hidden_layers\":2,\"sliding_window\":9,"
              "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    assert_true(m.layer[0].window == 0 && m.layer[1].window == 9);
    static const char *const longrope =
        "{\"model_type\":\"phi3\",\"hidden_size\":12,\"num_attention_heads\":2,"
        "\"rope_scaling\":{\"type\":\"%s\",\"short_factor\":[1,2,3],\"long_factor\":[4,5,6]}}";
    char text[300];
    (void)snprintf(text, sizeof text, longrope, "yarn"); /* as the first Phi-3 called it */
    parse(&m, text);
    (void)snprintf(text, sizeof text, longrope, "longrope");
    parse(&other, text);
    assert_true(m.rope.growth == ROPE_LONG && memcmp(&m, &other, sizeof m) == 0);
}

static void defaults_of_gemma(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\"}");
    assert_true(m.norm == NORM_RMS_OFFSET && m.head_dim == 256 && m.tied_head && m.embed_scale == (float)sqrt(3072));
    assert_true(m.activation == ACTIVATION_GELU_TANH && m.gated_mlp && !m.output_norms && m.attention_cap == 0);
    parse(&m, "{\"model_type\":\"gemma\",\"hidden_act\":\"gelu\",\"hidden_activation\":\"relu\"}");
    assert_int_equal(m.activation, ACTIVATION_RELU);
    parse(&m, "{\"model_type\":\"gemma2\",\"query_pre_attn_scalar\":144}");
    assert_true(m.attention_cap == 50 && m.logit_cap == 30 && m.attention_scale == 1.0f / 12 && m.output_norms);
    assert_true(m.layer[0].window == 4096 && m.layer[1].window == 0 && !m.qk_norm && m.window_rope.dims == 0);
    parse(&m, "{\"model_type\":\"gemma2\",\"attn_logit_softcapping\":null,\"final_logit_softcapping\":null}");
    assert_true(m.attention_cap == 0 && m.logit_cap == 0);
    parse(&m, "{\"model_type\":\"gemma3_text\",\"sliding_window\":512,\"rope_scaling\":{\"rope_type\":\"linear\","
              "\"factor\":8}}");
    assert_true(m.layer[4].window == 512 && m.layer[5].window == 0 && m.vocab == 262208 && m.qk_norm);
    assert_true(fabsf(m.rope.inv_freq[0] - 0.125f) < 1e-7f && m.window_rope.inv_freq[0] == 1);
    assert_true(fabsf(m.window_rope.inv_freq[1] - powf(1e4f, -2.0f / 256)) < 1e-6f);
    assert_true(model_rope(&m, 4) == &m.window_rope && model_rope(&m, 5) == &m.rope);
    parse(&other,
          "{\"model_type\":\"gemma3_text\",\"sliding_window\":512,\"rope_parameters\":{\"full_attention\":{"
          "\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":1e6},\"sliding_attention\":{\"rope_theta\":1e4}}}");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&m, "{\"model_type\":\"gemma3\",\"torch_dtype\":\"bfloat16\",\"text_config\":{\"hidden_size\":3840,"
              "\"sliding_window_pattern\":2},\"vision_config\":{}}");
    assert_true(m.dtype == DTYPE_BF16 && m.hidden == 3840 && m.layer[0].window == 4096 && m.layer[1].window == 0);
    assert_true(strcmp(m.model_type, "gemma3") == 0 && m.tied_head);
}

static void defaults_of_norms_behind(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"glm4\"}");
    assert_true(m.output_norms && !m.no_input_norms && m.rope.layout == ROPE_INTERLEAVED && m.rope.dims == 64);
    parse(&m, "{\"model_type\":\"olmo2\"}");
    assert_true(m.output_norms && m.no_input_norms && m.qk_norm_row && m.norm == NORM_RMS_ONCE && m.norm_eps == 1e-5f);
    assert_true(model_layer_sums(&m) == 3 && !weight_exists(&m, WEIGHT_ATTN_NORM, 0) &&
                !weight_exists(&m, WEIGHT_MLP_NORM, 0));
    parse(&m, "{\"model_type\":\"olmo3\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
              "\"original_max_position_embeddings\":8192},\"max_position_embeddings\":65536}");
    assert_true(m.layer[2].window == 4096 && m.layer[3].window == 0 && m.rope.attention_scaling > 1.2f);
    assert_true(m.window_rope.attention_scaling == 1 &&
                fabsf(m.window_rope.inv_freq[1] - powf(5e5f, -2.0f / 128)) < 1e-6f);
}

static void defaults_of_factors(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"granite\",\"logits_scaling\":8,\"embedding_multiplier\":12}");
    assert_true(m.attention_scale == 1 && m.residual_scale == 1 && m.logit_scale == 0.125f && m.embed_scale == 12);
    assert_false(m.embed_scale_rounded);
    parse(&m, "{\"model_type\":\"granitemoe\"}");
    assert_true(m.layer[0].experts && m.experts.routing.n_chosen == 2 && m.experts.routing.normalised && !m.mlp_bias);
    parse(&m, "{\"model_type\":\"cohere\",\"use_qk_norm\":true}");
    assert_true(m.norm == NORM_LAYER && !m.norm_bias && m.parallel_residual && m.shared_norm &&
                m.logit_scale == 0.0625f);
    assert_true(m.qk_norm_each && !m.qk_norm_row && m.rope.layout == ROPE_INTERLEAVED && m.rope.dims == 128);
    parse(&m, "{\"model_type\":\"cohere2\"}");
    assert_true(m.layer[2].window == 4096 && !m.layer[2].unrotated && m.layer[3].window == 0 && m.layer[3].unrotated);
    assert_true(model_rope(&m, 2) == &m.rope && model_rope(&m, 3) == NULL);
    parse(&m, "{\"model_type\":\"minimax_m2\",\"rotary_dim\":64}");
    assert_true(m.experts.routing.sigmoid && m.experts.routing.n_experts == 256 && m.rope.dims == 64 && m.qk_norm_row);
}

static void defaults_of_older_kin(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"phi\",\"partial_rotary_factor\":0.4,\"hidden_size\":2560}");
    assert_true(m.head_bias && m.parallel_residual && m.shared_norm && m.rope.dims == 32 && !m.gated_mlp);
    parse(&m, "{\"model_type\":\"falcon\"}");
    assert_true(m.n_kv_heads == 1 && m.shared_norm && m.tied_head && !m.qkv_bias && m.ffn == 4 * 4544 &&
                m.head_dim == 64);
    parse(&m, "{\"model_type\":\"falcon\",\"new_decoder_architecture\":true,\"hidden_size\":8192,"
              "\"num_attention_heads\":128,\"num_kv_heads\":8}");
    assert_true(m.n_kv_heads == 8 && m.parallel_residual && !m.shared_norm);
    parse(&m, "{\"model_type\":\"falcon\",\"parallel_attn\":false,\"multi_query\":false}");
    assert_true(m.n_kv_heads == 71 && !m.parallel_residual && !m.shared_norm);
    parse(&m, "{\"model_type\":\"gpt_neo\"}");
    assert_true(m.attention_scale == 1 && m.layer[0].window == 0 && m.layer[23].window == 256 && m.out_bias &&
                !m.qkv_bias);
    parse(&m, "{\"model_type\":\"ministral3\"}");
    assert_true(m.rope.query_growth == 0.1f && m.rope.query_period == 16384 && m.rope.attention_scaling == 1);
    parse(&other, "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\"}}");
    (void)snprintf(other.model_type, sizeof other.model_type, "%s", "ministral3");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&m, "{\"model_type\":\"mistral3\",\"text_config\":{\"hidden_size\":5120,\"head_dim\":128}}");
    assert_true(m.rope.query_growth == 0 && m.hidden == 5120 && !m.tied_head);
}

static void experts(void **state)
{
    (void)state;
    parse(&m, "{\"architectures\":[\"Qwen3MoeForCausalLM\"]}");
    assert_true(m.experts.routing.n_experts == 128 && m.experts.routing.n_chosen == 8 && m.experts.ffn == 768);
    assert_true(!m.experts.routing.normalised && m.experts.shared_ffn == 0 && m.qk_norm && !m.qkv_bias);
    assert_true(m.layer[0].experts && m.layer[23].experts && !m.layer[24].experts && m.layer[0].window == 0);
    assert_int_equal(m.head_dim, 64); /* hidden / heads: the class has no default of its own */
    parse(&m,
          "{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":2,\"mlp_only_layers\":[3,99,-1],\"num_experts\":60,"
          "\"norm_topk_prob\":true,\"use_sliding_window\":true,\"sliding_window\":77,\"num_hidden_layers\":5}");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(m.layer[i].experts, i == 1);
        assert_int_equal(m.layer[i].window, 77);
    }
    assert_true(m.experts.routing.normalised && m.experts.routing.n_experts == 60);
    assert_true(weight_exists(&m, WEIGHT_ROUTER, 1) && !weight_exists(&m, WEIGHT_MLP_IN, 1));
    assert_true(weight_exists(&m, WEIGHT_MLP_OUT, 0) && !weight_exists(&m, WEIGHT_EXPERTS_OUT, 0));
    parse(&m, "{\"model_type\":\"qwen3_moe\",\"num_local_experts\":0}");
    assert_false(m.layer[0].experts);
    parse(&m, "{\"model_type\":\"qwen2_moe\",\"use_sliding_window\":true,\"max_window_layers\":3}");
    assert_true(m.experts.routing.n_experts == 60 && m.experts.routing.n_chosen == 4 && m.experts.ffn == 1408);
    assert_true(m.experts.shared_ffn == 5632 && m.experts.shared_gate && m.qkv_bias && !m.out_bias);
    assert_true(m.layer[0].window == 4096 && m.layer[1].window == 0 && m.layer[2].window == 4096 &&
                m.layer[4].window == 0);
    assert_true(weight_exists(&m, WEIGHT_SHARED_GATE, 5) && weight_exists(&m, WEIGHT_SHARED_IN, 5));
    parse(&m, "{\"model_type\":\"mixtral\"}");
    assert_true(m.experts.routing.n_experts == 8 && m.experts.routing.n_chosen == 2 && m.experts.ffn == 14336);
    assert_true(m.experts.routing.normalised && m.layer[31].experts && m.layer[0].window == 0);
    assert_true(m.norm_eps == 1e-5f && fabsf(m.rope.inv_freq[1] - powf(1e6f, -2.0f / 128)) < 1e-6f);
    parse(&m, "{\"model_type\":\"mixtral\",\"sliding_window\":4096}");
    assert_int_equal(m.layer[31].window, 4096);
    parse(&m, "{\"model_type\":\"glm4_moe\",\"n_shared_experts\":2,\"first_k_dense_replace\":3,\"head_dim\":128}");
    assert_true(m.experts.routing.sigmoid && m.experts.routing.normalised && m.experts.routing.scale == 1);
    assert_true(m.experts.shared_ffn == 2816 && !m.experts.shared_gate && m.experts.router_bias && !m.experts.biases);
    assert_true(!m.layer[2].experts && m.layer[3].experts && m.rope.dims == 64 && !m.qk_norm && !m.out_bias);
    parse(&m, V3 "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":1,\"mscale_all_dim\":1}}");
    assert_true(fabsf(m.attention_scale * sqrtf(192) - 1.8738f) < 1e-4f && m.rope.attention_scaling == 1);
    assert_true(m.head_dim == 576 && m.n_kv_heads == 1 && m.rope.dims == 64 && m.rope.layout == ROPE_INTERLEAVED);
    assert_true(m.latent.query_rank == 1536 && model_value_dim(&m) == 128 && model_cache_arrays(&m) == 1);
    assert_true(!m.layer[2].experts && m.layer[3].experts && m.experts.routing.n_groups == 8 &&
                m.experts.routing.n_kept == 4);
    parse(&m, V2 "\"q_lora_rank\":null,\"n_group\":8,\"topk_group\":3,\"norm_topk_prob\":false}");
    assert_true(m.latent.query_rank == 0 && m.experts.routing.n_groups == 1 && !m.experts.routing.sigmoid);
    assert_true(!m.experts.routing.normalised && m.experts.shared_ffn == 2 * 1407 && m.layer[0].experts);
    parse(&m, L4 "\"interleave_moe_layer_step\":2,\"num_hidden_layers\":8}");
    for (int i = 0; i < m.n_layers; i++) {
        assert_true(m.layer[i].experts == (i % 2 == 1) && m.layer[i].unrotated == (i % 4 == 3));
        assert_int_equal(m.layer[i].chunk, i % 4 == 3 ? 0 : 8192);
    }
    assert_true(m.experts.routing.n_experts == 16 && m.experts.routing.of_input && m.experts.routing.by_logits);
    assert_true(m.ffn == 16384 && m.experts.ffn == 8192 && m.experts.shared_ffn == 8192 && m.qk_norm_unit);
    assert_true(model_rope(&m, 3) == &m.unrotated_rope && m.unrotated_rope.query_shift == 1 && m.rope.dims == 128);
    parse(&m, L4 "\"num_hidden_layers\":2,\"no_rope_layers\":[],\"no_rope_layer_interval\":2,\"moe_layers\":[],"
                 "\"layer_types\":[\"full_attention\",\"chunked_attention\"],\"attn_temperature_tuning\":false}");
    assert_true(m.layer[0].chunk == 0 && m.layer[1].chunk == 8192 && m.layer[1].unrotated && !m.layer[1].experts);
    assert_null(model_rope(&m, 1));
    parse(&m, "{\"model_type\":\"llama4\",\"text_config\":{\"attention_chunk_size\":null}}");
    assert_true(m.layer[0].chunk == 0 && m.experts.routing.n_experts == 16);
    parse(&m, LITE "\"num_hidden_layers\":3,\"mlp_layer_types\":[\"sparse\",\"dense\",\"sparse\"]}");
    assert_true(m.layer[0].experts && !m.layer[1].experts && m.layer[2].experts && m.experts.routing.scale == 1.8f);
    parse(&m, "{\"model_type\":\"gpt_oss\"}");
    parse(&other,
          "{\"model_type\":\"gpt_oss\",\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,"
          "\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,\"original_max_position_embeddings\":4096}}");
    assert_memory_equal(&m, &other, sizeof m);
    assert_true(m.sinks && m.experts.biases && m.experts.router_bias && m.qkv_bias && m.out_bias &&
                m.experts.routing.normalised);
    assert_true(m.norm == NORM_RMS_ONCE && m.activation == ACTIVATION_SWIGLU && m.head_dim == 64 && m.n_layers == 36);
    assert_true(m.layer[0].window == 128 && m.layer[1].window == 0 && m.layer[35].experts);
    assert_true(fabsf(m.rope.attention_scaling - 1.3465736f) < 1e-6f);
}

#define GLM     "{\"model_type\":\"glm4_moe\",\"head_dim\":128,"
#define MIXTRAL "{\"model_type\":\"mixtral\","
#define LLAMA   "{\"model_type\":\"llama\","
#define BIG     "999999999999"
#define SCALING LLAMA "\"rope_scaling\":"

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
        {"{}", ERR_INPUT, "model_type|gpt2|qwen3"},
        {"{\"model_type\":3}", ERR_INPUT, "model_type|an integer|a string"},
        {"{\"model_type\":\"mamba\"}", ERR_UNSUPPORTED, "model_type|mamba|gpt2, gptj|qwen3"},
        {"{\"model_type\":\"qwen3_next\"}", ERR_UNSUPPORTED, "model_type|qwen3_next|expected one of"},
        {MIXTRAL "\"num_local_experts\":0}", ERR_INPUT, "num_local_experts|0|[1, 1024]"},
        {MIXTRAL "\"num_local_experts\":1025}", ERR_INPUT, "num_local_experts|1025|[1, 1024]"},
        {MIXTRAL "\"num_experts_per_tok\":9}", ERR_INPUT, "num_experts_per_tok|9|8 experts"},
        {MIXTRAL "\"num_local_experts\":1024,\"intermediate_size\":4194304}", ERR_UNSUPPORTED, "1024 experts|4194304"},
        {"{\"model_type\":\"smollm3\",\"no_rope_layers\":[1]}", ERR_INPUT, "no_rope_layers|of 1|36"},
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
        {V3 "\"partial_rotary_factor\":0.5}", ERR_UNSUPPORTED, "32 of the 64|qk_rope_head_dim|all"},
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
        {GLM "\"n_group\":3}", ERR_INPUT, "n_group|is 3|128 experts"},
        {GLM "\"n_group\":128}", ERR_INPUT, "n_group|128|[1, 32]"},
        {GLM "\"n_group\":8,\"topk_group\":9}", ERR_INPUT, "topk_group|9"},
        {GLM "\"n_group\":32,\"topk_group\":1}", ERR_INPUT, "topk_group|1|8 experts"},
        {"{\"model_type\":\"gpt_oss\",\"swiglu_limit\":5}", ERR_UNSUPPORTED, "swiglu_limit|5|7"},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":3}", ERR_INPUT, "mlp_only_layers|an integer|an array"},
        {"{\"model_type\":\"qwen3_moe\",\"mlp_only_layers\":[1,\"a\"]}", ERR_INPUT, "mlp_only_layers|[1]|a string"},
        {"{\"model_type\":\"qwen3_moe\",\"decoder_sparse_step\":0}", ERR_INPUT, "decoder_sparse_step|0|[1, 1024]"},
        {"{\"model_type\":\"llava\",\"text_config\":{\"model_type\":\"llama\"}}", ERR_UNSUPPORTED,
         "model_type|llava|text_config"},
        {"{\"architectures\":[\"Qwen2VLForCausalLM\"]}", ERR_UNSUPPORTED, "architectures|Qwen2VLForCausalLM"},
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

/* Long hostile strings still end in one line that fits, control characters and all. */
static void long_strings(void **state)
{
    static char text[6000], name[4000];
    struct err e = {0};
    (void)state;
    memset(name, 'x', sizeof name - 1);
    (void)snprintf(text, sizeof text, "{\"model_type\":\"a\\n\\u001b%s\"}", name);
    assert_int_equal(model_config_parse(&m, text, strlen(text), "config.json", &e), -1);
    expect_error(&e, ERR_UNSUPPORTED, "model_type|a??xxx|qwen3");
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
    assert_int_equal(mkfifo(path, 0600), 0); /* does not block */
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_INPUT, "config.json|not a regular file");
    memset(&e, 0, sizeof e);
    assert_int_equal(remove(path), 0);
    folder_write_text(&f, "model.gguf", "GGUF");
    assert_int_equal(model_config_read(&m, f.path, &e), -1);
    expect_error(&e, ERR_UNSUPPORTED, "model.gguf|unquantised repository");
    folder_remove(&f);
}

/* The paper's slopes: 2^(-8/n)^i for powers of two; otherwise the odd powers of the next one fill up. */
static void alibi_slopes(void **state)
{
    (void)state;
    for (int h = 0; h < 8; h++)
        assert_true(model_alibi_slope(h, 8) == ldexpf(1, -(h + 1)));
    for (int h = 0; h < 64; h++)
        assert_true(model_alibi_slope(h, 112) == model_alibi_slope(h, 64));
    for (int h = 64; h < 112; h++)
        assert_true(fabs(model_alibi_slope(h, 112) - pow(2, -4.0 / 64 * (2 * (h - 64) + 1))) < 1e-7);
    assert_true(model_alibi_slope(0, 1) == ldexpf(1, -8));
    assert_true(fabsf(model_alibi_slope(2, 3) - 0.25f) < 1e-7f); /* 2^(-4/2) */
}

/* The list in messages is the table. */
static void family_list(void **state)
{
    char names[500];
    int n = 0;
    (void)state;
    (void)snprintf(names, sizeof names, "%s", family_names());
    for (char *rest = names, *name; (name = strtok_r(rest, ", ", &rest)) != NULL; n++) {
        assert_non_null(family_find(name));
        assert_string_equal(family_find(name)->model_type, name);
        assert_true(strlen(name) < sizeof m.model_type);
    }
    assert_int_equal(n, 42);
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
        cmocka_unit_test(spellings_agree),
        cmocka_unit_test(defaults_of_gpt2_and_gptj),
        cmocka_unit_test(defaults_of_neox_opt_bloom),
        cmocka_unit_test(defaults_of_llama_and_kin),
        cmocka_unit_test(defaults_of_further_kin),
        cmocka_unit_test(defaults_of_gemma),
        cmocka_unit_test(defaults_of_norms_behind),
        cmocka_unit_test(defaults_of_factors),
        cmocka_unit_test(defaults_of_older_kin),
        cmocka_unit_test(experts),
        cmocka_unit_test(refused),
        cmocka_unit_test(long_strings),
        cmocka_unit_test(folders),
        cmocka_unit_test(alibi_slopes),
        cmocka_unit_test(family_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
