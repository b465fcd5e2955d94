/* tests/unit/test_config.c - config.json: spellings, defaults of transformers' classes, switches. */
#include "tests/unit/config_texts.h"
#include "tests/unit/unit.h"

#include "partition/families.h"
#include "partition/model.h"

#include <math.h>

static struct model_config m, other; /* too large for the stack: each layer takes kilobytes */

static void parse(struct model_config *to, const char *text)
{
    struct err e = {0};
    if (model_config_parse(to, text, strlen(text), "config.json", &e) != 0)
        fail_msg("%s: %s", text, e.text);
}

/* Expects the same bytes, thus the same model. */
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
    parse(&m, "{\"model_type\":\"apertus\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    assert_true(m.qk_norm && !m.gated_mlp && m.activation == ACTIVATION_XIELU && m.activation_trained);
    assert_true(m.norm_eps == 1e-5f && fabsf(m.rope.inv_freq[1] - powf(12e6f, -2.0f / 128) / 2) < 1e-6f);
    expect_same("{\"model_type\":\"apertus\",\"rope_theta\":1e6}",
                "{\"model_type\":\"apertus\",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
    expect_same("{\"model_type\":\"apertus\",\"rope_scaling\":{}}", "{\"model_type\":\"apertus\"}");
    parse(&m, "{\"model_type\":\"arcee\",\"mlp_bias\":true}");
    assert_true(!m.qk_norm && !m.gated_mlp && m.mlp_bias && !m.activation_trained && m.head_dim == 80);
    assert_true(m.activation == ACTIVATION_XIELU && m.layer[31].xielu.positive == 1 && m.layer[31].xielu.beta == 0);
    parse(&m, "{\"model_type\":\"hunyuan_v1_dense\",\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000,"
              "\"factor\":1}}");
    assert_true(m.qk_norm && m.qk_norm_rotated && m.rope.growth == ROPE_FIXED && m.scaled_positions == 2048);
    assert_true(fabsf(m.rope.inv_freq[1] - powf(10000 * powf(1000, 128 / 126.0f), -2.0f / 128)) < 1e-6f);
    parse(&m, "{\"model_type\":\"hunyuan_v1_dense\",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}}");
    assert_true(m.rope.growth == ROPE_DYNAMIC && m.scaled_positions == 4096);
    parse(&m, "{\"model_type\":\"hunyuan_v1_moe\",\"num_hidden_layers\":2,\"num_experts\":9,\"moe_topk\":[3,3]}");
    assert_true(m.layer[1].experts && m.experts.routing.n_experts == 9 && m.experts.routing.n_chosen == 3);
    assert_true(m.experts.ffn == 11008 && m.experts.shared_ffn == 11008 && m.experts.routing.normalised);
    static const char *const flat =
        "\"num_hidden_layers\":2,\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1]}";
    char vl[300];
    (void)snprintf(vl, sizeof vl, "{\"model_type\":\"qwen2_5_vl\",%s}", flat);
    parse(&m, vl);
    assert_true(m.n_layers == 2 && m.qkv_bias && m.norm_eps == 1e-5f && m.rope.growth == ROPE_FIXED && !m.tied_head);
    (void)snprintf(vl, sizeof vl, "{\"model_type\":\"qwen2_5_vl\",\"tie_word_embeddings\":true,\"text_config\":{%s}}",
                   flat);
    parse(&m, vl);
    assert_true(m.n_layers == 2 && m.tied_head);
    expect_same(
        "{\"model_type\":\"qwen3_vl\",\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}}",
        "{\"model_type\":\"qwen3_vl\",\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":true}}");
    parse(&m, "{\"model_type\":\"qwen3_vl_moe\",\"text_config\":{\"mlp_only_layers\":[1]}}");
    assert_true(m.qk_norm && m.layer[0].experts && !m.layer[1].experts && m.experts.routing.normalised);
    parse(&m, "{\"model_type\":\"ministral\",\"num_hidden_layers\":2,\"sliding_window\":9,"
              "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}");
    assert_true(m.layer[0].window == 0 && m.layer[1].window == 9);
    static const char *const longrope =
        "{\"model_type\":\"phi3\",\"hidden_size\":12,\"num_attention_heads\":2,"
        "\"rope_scaling\":{\"type\":\"%s\",\"short_factor\":[1,2,3],\"long_factor\":[4,5,6]}}";
    char text[300];
    (void)snprintf(text, sizeof text, longrope, "yarn"); /* its name in the first Phi-3 */
    parse(&m, text);
    (void)snprintf(text, sizeof text, longrope, "longrope");
    parse(&other, text);
    assert_true(m.rope.growth == ROPE_LONG && memcmp(&m, &other, sizeof m) == 0);
}

/* Keys as published checkpoints have them, of the spelling of transformers 4. */
static void defaults_of_later_kin(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"seed_oss\",\"rope_scaling\":{\"rope_type\":\"default\"},\"rope_theta\":1e7,"
              "\"residual_dropout\":0.1}");
    assert_true(m.qkv_bias && !m.out_bias && !m.mlp_bias && !m.tied_head && m.n_heads == 80 && m.n_kv_heads == 8);
    assert_true(m.head_dim == 128 && m.norm_eps == 1e-6f && m.norm == NORM_RMS);
    assert_true(fabsf(m.rope.inv_freq[1] - powf(1e7f, -2.0f / 128)) < 1e-6f);
    parse(&m, "{\"model_type\":\"seed_oss\",\"attention_bias\":false,\"attention_out_bias\":true,\"mlp_bias\":true}");
    assert_true(!m.qkv_bias && m.out_bias && m.mlp_bias);
    parse(&m, "{\"model_type\":\"ernie4_5\",\"rope_scaling\":null,\"use_bias\":false}");
    assert_true(m.rope.layout == ROPE_INTERLEAVED && m.rope.dims == 128 && m.tied_head && m.norm_eps == 1e-5f);
    assert_true(fabsf(m.rope.inv_freq[1] - powf(5e5f, -2.0f / 128)) < 1e-6f && !m.qkv_bias && !m.mlp_bias);
    parse(&m, "{\"model_type\":\"ernie4_5\",\"use_bias\":true,\"tie_word_embeddings\":false}");
    assert_true(m.qkv_bias && m.out_bias && m.mlp_bias && !weight_exists(&m, WEIGHT_HEAD_BIAS, -1));
    parse(&m, "{\"model_type\":\"olmo\",\"clip_qkv\":null,\"rms_norm_eps\":0.1}");
    assert_true(m.norm == NORM_LAYER && m.norm_eps == 1e-5f && !m.norm_affine && !m.output_norms && !m.qk_norm);
    assert_true(m.n_kv_heads == 32 && m.vocab == 50304 && !weight_exists(&m, WEIGHT_FINAL_NORM, -1));
    parse(&m, "{\"model_type\":\"internlm3\",\"qkv_bias\":true,\"bias\":false,\"rope_theta\":5e7,\"rope_scaling\":{"
              "\"factor\":6.0,\"rope_type\":\"dynamic\"}}");
    assert_true(m.qkv_bias && !m.out_bias && !m.mlp_bias && m.rope.growth == ROPE_DYNAMIC && m.n_kv_heads == 2);
    expect_same("{\"model_type\":\"internlm3\",\"qkv_bias\":true,\"bias\":true}",
                "{\"model_type\":\"internlm3\",\"attention_bias\":true,\"mlp_bias\":true}");
    parse(&m, "{\"model_type\":\"iquestcoder\",\"clip_qkv\":null,\"use_sliding_window\":false,\"sliding_window\":9}");
    assert_true(m.n_layers == 80 && m.head_dim == 128 && m.layer[0].window == 0 && !m.qkv_bias && !m.mlp_bias);
    parse(&m, "{\"model_type\":\"helium\",\"attention_bias\":true}");
    assert_true(m.rope.layout == ROPE_INTERLEAVED && m.norm == NORM_RMS_ONCE && m.norm_eps == 1e-8f);
    assert_true(fabsf(m.rope.inv_freq[1] - powf(1e5f, -2.0f / 128)) < 1e-6f && m.qkv_bias && !m.out_bias);
    parse(&m, "{\"model_type\":\"cwm\"}");
    for (int i = 0; i < m.n_layers; i++)
        assert_int_equal(m.layer[i].window, i % 4 == 0 ? 0 : 8192);
    assert_true(m.norm_eps == 1e-5f && !m.qkv_bias && !m.mlp_bias && !m.tied_head && m.window_rope.dims == 0);
    expect_same("{\"model_type\":\"cwm\"}",
                "{\"model_type\":\"cwm\",\"rope_theta\":1e6,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16.0,"
                "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":8192}}");
}

static void defaults_of_youtu(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"youtu\"}");
    assert_true(m.latent.rank == 512 && m.latent.query_rank == 1536 && m.latent.rotated == 64 && m.head_dim == 576);
    assert_true(m.tied_head && m.experts.routing.n_experts == 0 && !m.layer[31].experts && !m.out_bias);
    assert_true(m.rope.layout == ROPE_INTERLEAVED && weight_exists(&m, WEIGHT_MLP_IN, 31));
    parse(&m,
          "{\"model_type\":\"youtu\",\"rope_interleave\":false,\"tie_word_embeddings\":false,\"q_lora_rank\":null}");
    assert_true(m.rope.layout == ROPE_HALF && !m.tied_head && m.latent.query_rank == 0);
    expect_same("{\"model_type\":\"youtu\",\"rope_interleave\":null}",
                "{\"model_type\":\"youtu\",\"rope_interleave\":false}"); /* false, not the class default */
    expect_same("{\"model_type\":\"kimi_k2\",\"norm_topk_prob\":null}",
                "{\"model_type\":\"kimi_k2\",\"norm_topk_prob\":false}");
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
    parse(&m, "{\"model_type\":\"vaultgemma\",\"sliding_window\":512}");
    assert_true(!m.output_norms && m.norm == NORM_RMS_OFFSET && m.attention_cap == 50 && m.logit_cap == 30 &&
                m.tied_head);
    assert_true(m.layer[0].window == 512 && m.layer[1].window == 0 && !weight_exists(&m, WEIGHT_MLP_OUT_NORM, 0));
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

/* Files of transformers may leave out a "sliding_window" that has the default, and list the layers. */
static void default_windows_of_listed_layers(void **state)
{
    static const struct {
        const char *type;
        int window;
    } table[] = {{"gemma2", 4096},  {"gemma3_text", 4096}, {"olmo3", 4096},   {"cohere2", 4096},
                 {"mistral", 4096}, {"gpt_oss", 128},      {"exaone4", 4096}, {"cwm", 8192}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[200];
        (void)snprintf(text, sizeof text,
                       "{\"model_type\":\"%s\",\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\","
                       "\"sliding_attention\"]}",
                       table[i].type);
        parse(&m, text);
        assert_int_equal(m.layer[0].window, 0);
        assert_int_equal(m.layer[1].window, table[i].window);
    }
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
    parse(&m, "{\"model_type\":\"exaone4\"}");
    assert_true(m.output_norms && m.no_input_norms && m.norm == NORM_RMS && m.norm_eps == 1e-5f);
    assert_true(m.qk_norm && !m.qk_norm_each && !m.qk_norm_row && !weight_exists(&m, WEIGHT_ATTN_NORM, 0));
    for (int i = 0; i < m.n_layers; i++)
        assert_true(m.layer[i].window == (i % 4 == 3 ? 0 : 4096) && m.layer[i].unrotated == (i % 4 == 3));
    parse(&m, "{\"model_type\":\"olmo3\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
              "\"original_max_position_embeddings\":8192},\"max_position_embeddings\":65536}");
    assert_true(m.layer[2].window == 4096 && m.layer[3].window == 0 && m.rope.attention_scaling > 1.2f);
    assert_true(m.window_rope.attention_scaling == 1 &&
                fabsf(m.window_rope.inv_freq[1] - powf(5e5f, -2.0f / 128)) < 1e-6f);
}

/* The spellings of EXAONE's windows: a number, letters, a list beside letters, as in published checkpoints. */
static void windows_of_exaone(void **state)
{
    (void)state;
    expect_same(EXAONE "\"num_hidden_layers\":8,\"sliding_window_pattern\":4}",
                EXAONE "\"num_hidden_layers\":8,\"sliding_window_pattern\":\"LLLG\"}");
    parse(&m, EXAONE "\"num_hidden_layers\":5,\"sliding_window\":9,\"sliding_window_pattern\":\"GL\"}");
    for (int i = 0; i < 5; i++)
        assert_true(m.layer[i].window == (i % 2 == 1 ? 9 : 0) && m.layer[i].unrotated == (i % 2 == 0));
    parse(&m, EXAONE "\"num_hidden_layers\":3,\"sliding_window_pattern\":\"L\"}"); /* the last layer is full */
    assert_true(m.layer[1].window == 4096 && m.layer[2].window == 0 && m.layer[2].unrotated);
    parse(&m, EXAONE "\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"sliding_attention\"],"
                     "\"sliding_window\":7,\"sliding_window_pattern\":\"LLLG\"}");
    assert_true(m.layer[0].window == 0 && m.layer[0].unrotated && m.layer[1].window == 7 && !m.layer[1].unrotated);
    parse(&m, EXAONE "\"num_hidden_layers\":2,\"layer_types\":[\"full_attention\",\"full_attention\"],"
                     "\"sliding_window\":null,\"sliding_window_pattern\":null}");
    assert_true(m.layer[0].window == 0 && !m.layer[0].unrotated && !m.layer[1].unrotated);
}

static void defaults_of_factors(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"granite\",\"logits_scaling\":8,\"embedding_multiplier\":12}");
    assert_true(m.attention_scale == 1 && m.residual_scale == 1 && m.logit_scale == 0.125f && m.embed_scale == 12);
    assert_false(m.embed_scale_rounded);
    parse(&m,
          "{\"model_type\":\"hyperclovax\",\"logits_scaling\":0.125,\"head_dim\":64,\"attention_multiplier\":null}");
    assert_true(m.attention_scale == 0.125f && m.residual_scale == 1 && m.logit_scale == 0.125f && m.output_norms);
    parse(&m,
          "{\"model_type\":\"hyperclovax\",\"attention_multiplier\":0.5,\"use_post_norm\":false,\"mlp_bias\":true}");
    assert_true(m.attention_scale == 0.5f && !m.output_norms && m.mlp_bias && !m.out_bias);
    parse(&m, "{\"model_type\":\"granitemoe\"}");
    assert_true(m.layer[0].experts && m.experts.routing.n_chosen == 2 && m.experts.routing.normalised && !m.mlp_bias);
    parse(&m, "{\"model_type\":\"granitemoeshared\"}");
    assert_true(m.layer[0].experts && m.experts.shared_ffn == 0 && m.experts.ffn == 11008);
    parse(&m, "{\"model_type\":\"granitemoeshared\",\"shared_intermediate_size\":77}");
    assert_true(m.experts.shared_ffn == 77 && !m.experts.shared_gate && weight_exists(&m, WEIGHT_SHARED_IN, 0));
    parse(&m,
          HYBRID "\"num_hidden_layers\":2,\"layer_types\":[\"attention\",\"full_attention\"],\"num_local_experts\":0,"
                 "\"num_experts_per_tok\":0,\"position_embedding_type\":\"rope\",\"shared_intermediate_size\":77}");
    assert_true(m.ffn == 77 && !m.layer[1].experts && m.experts.routing.n_experts == 0 && !m.layer[1].unrotated);
    parse(&m, HYBRID "\"num_hidden_layers\":1,\"layers_block_type\":[\"attention\"],\"position_embedding_type\":null}");
    assert_true(m.experts.shared_ffn == 1024 && m.experts.routing.n_experts == 8 && m.layer[0].experts);
    assert_null(model_rope(&m, 0));
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
    parse(&m, "{\"model_type\":\"olmoe\",\"clip_qkv\":null}");
    assert_true(m.experts.routing.n_experts == 64 && m.experts.routing.n_chosen == 8 && m.experts.ffn == 2048);
    assert_true(!m.experts.routing.normalised && m.layer[0].experts && m.qk_norm_row && m.norm == NORM_RMS);
    assert_true(m.n_kv_heads == 16 && m.norm_eps == 1e-5f && !m.qkv_bias && model_layer_sums(&m) == 3);
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
    parse(&m, K2 "\"n_group\":1,\"topk_group\":1,\"first_k_dense_replace\":1,\"n_routed_experts\":384,\"rope_theta\":"
                 "50000.0,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":32.0,\"beta_fast\":1.0,\"beta_slow\":1.0,"
                 "\"mscale\":1.0,"
                 "\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":4096}}");
    assert_true(!m.layer[0].experts && m.layer[1].experts && m.experts.routing.sigmoid && m.latent.rank == 512);
    assert_true(fabsf(m.rope.inv_freq[19] - 1.62176e-3f) < 1e-7f && fabsf(m.rope.inv_freq[20] - 3.61405e-5f) < 1e-9f);
    assert_true(fabsf(m.attention_scale * sqrtf(192) - 1.81326f) < 1e-4f && m.rope.attention_scaling == 1);
    parse(&m, DOTS "\"n_shared_experts\":2,\"scoring_func\":\"noaux_tc\",\"max_window_layers\":60}");
    assert_true(m.layer[59].window == 0 && m.layer[60].window == 4096 && m.layer[0].experts && m.qk_norm);
    assert_true(m.experts.routing.sigmoid && !m.experts.routing.normalised && m.experts.routing.scale == 1);
    assert_true(m.experts.shared_ffn == 2816 && m.experts.router_bias && m.rope.layout == ROPE_HALF);
    parse(&m, DOTS "\"n_shared_experts\":2,\"sliding_window\":null,\"max_window_layers\":0}");
    assert_int_equal(m.layer[61].window, 0);
    parse(&m, ERNIE "\"moe_layer_start_index\":3,\"moe_layer_end_index\":9,\"moe_layer_interval\":2,\"moe_k\":8}");
    for (int i = 0; i < m.n_layers; i++)
        assert_int_equal(m.layer[i].experts, i >= 3 && i <= 9 && i % 2 == 1);
    assert_true(m.experts.routing.corrected && !m.experts.routing.sigmoid && m.experts.routing.normalised);
    assert_true(m.experts.routing.n_chosen == 8 && m.experts.routing.least == 1e-12f && m.experts.router_bias);
    assert_true(m.experts.shared_ffn == 3072 && m.rope.layout == ROPE_INTERLEAVED && m.tied_head);
    parse(&m, ERNIE "\"moe_num_shared_experts\":0}");
    assert_true(m.experts.shared_ffn == 0 && !m.layer[0].experts && m.layer[27].experts);
    parse(&m, "{\"model_type\":\"solar_open\",\"attention_bias\":true,\"first_k_dense_replace\":0}");
    assert_true(m.layer[0].experts && m.layer[47].experts && m.experts.routing.sigmoid && m.experts.ffn == 1280);
    assert_true(m.qkv_bias && !m.out_bias && !m.qk_norm && m.rope.dims == 128 && m.experts.shared_ffn == 1280);
    parse(&m, EXAMOE "\"sliding_window\":128,\"first_k_dense_replace\":2}");
    assert_true(m.layer[2].window == 128 && !m.layer[2].unrotated && m.layer[3].window == 0 && m.layer[3].unrotated);
    assert_true(!m.layer[1].experts && m.layer[2].experts && m.experts.routing.scale == 2.5f && m.qk_norm);
    parse(&m,
          EXAMOE "\"num_hidden_layers\":2,\"sliding_window_pattern\":\"LG\",\"mlp_layer_types\":[\"sparse\",\"dense\"],"
                 "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}");
    assert_true(m.layer[0].window == 4096 && m.layer[1].unrotated && m.layer[0].experts && !m.layer[1].experts);
    parse(&m, EXAMOE "\"sliding_window\":null}");
    assert_true(m.layer[0].window == 0 && !m.layer[0].unrotated && !m.layer[3].unrotated);
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

/* The paper's slopes: 2^(-8/n)^i for powers of two; otherwise odd powers of the next one fill the remainder. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spellings_agree),
        cmocka_unit_test(defaults_of_gpt2_and_gptj),
        cmocka_unit_test(defaults_of_neox_opt_bloom),
        cmocka_unit_test(defaults_of_llama_and_kin),
        cmocka_unit_test(defaults_of_further_kin),
        cmocka_unit_test(defaults_of_later_kin),
        cmocka_unit_test(defaults_of_youtu),
        cmocka_unit_test(defaults_of_gemma),
        cmocka_unit_test(default_windows_of_listed_layers),
        cmocka_unit_test(defaults_of_norms_behind),
        cmocka_unit_test(windows_of_exaone),
        cmocka_unit_test(defaults_of_factors),
        cmocka_unit_test(defaults_of_older_kin),
        cmocka_unit_test(experts),
        cmocka_unit_test(alibi_slopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
