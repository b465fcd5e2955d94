/* tests/unit/family_inventory.h - the tensors of each family as models.md section 4 lists them, and small configs with
 * awkward sizes. Written from that document, not from partition/families/: test_read_plan compares the two. */
#ifndef TESTS_UNIT_FAMILY_INVENTORY_H
#define TESTS_UNIT_FAMILY_INVENTORY_H

#include "partition/weights.h"

/* The contents of a tensor: w the whole role; q, k, v; B three blocks; P three a head; g, u gate and up, G both; A all
 * experts (of gate, then up; or of down), I all experts (of gate and up in turns), one below the other as three
 * dimensions. A name with a second %d belongs to one expert. Its size in letters: V E P(ositions) H D Q(ueries) K(eys)
 * T(hree of them) h(eads) F, G twice F, X (experts), M (columns of one), N twice M, S(hared), 1; 0 rows: a vector. */
struct inventory {
    enum weight_id id;
    char part;
    const char *name;
    char rows, cols;
    bool in_out;
};

struct fixture {
    const char *config;
    const char *prefix;
    const struct inventory *line;
    const char *head;                /* of an untied model; never prefixed */
    const struct inventory *experts; /* of layers with a mixture; NULL: there is none */
};

static const struct inventory gpt2[] = {
    {WEIGHT_EMBED, 'w', "wte.weight", 'V', 'H', false},
    {WEIGHT_POSITION, 'w', "wpe.weight", 'P', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "ln_f.weight", '0', 'H', false},
    {WEIGHT_FINAL_NORM_BIAS, 'w', "ln_f.bias", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "h.%d.ln_1.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM_BIAS, 'w', "h.%d.ln_1.bias", '0', 'H', false},
    {WEIGHT_QKV, 'B', "h.%d.attn.c_attn.weight", 'H', 'T', true},
    {WEIGHT_QKV_BIAS, 'B', "h.%d.attn.c_attn.bias", '0', 'T', false},
    {WEIGHT_OUT, 'w', "h.%d.attn.c_proj.weight", 'Q', 'H', true},
    {WEIGHT_OUT_BIAS, 'w', "h.%d.attn.c_proj.bias", '0', 'H', false},
    {WEIGHT_MLP_NORM, 'w', "h.%d.ln_2.weight", '0', 'H', false},
    {WEIGHT_MLP_NORM_BIAS, 'w', "h.%d.ln_2.bias", '0', 'H', false},
    {WEIGHT_MLP_IN, 'w', "h.%d.mlp.c_fc.weight", 'H', 'F', true},
    {WEIGHT_MLP_IN_BIAS, 'w', "h.%d.mlp.c_fc.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "h.%d.mlp.c_proj.weight", 'F', 'H', true},
    {WEIGHT_MLP_OUT_BIAS, 'w', "h.%d.mlp.c_proj.bias", '0', 'H', false},
    {0},
};
static const struct inventory gptj[] = {
    {WEIGHT_EMBED, 'w', "wte.weight", 'V', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "ln_f.weight", '0', 'H', false},
    {WEIGHT_FINAL_NORM_BIAS, 'w', "ln_f.bias", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "h.%d.ln_1.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM_BIAS, 'w', "h.%d.ln_1.bias", '0', 'H', false},
    {WEIGHT_QKV, 'q', "h.%d.attn.q_proj.weight", 'Q', 'H', false},
    {WEIGHT_QKV, 'k', "h.%d.attn.k_proj.weight", 'K', 'H', false},
    {WEIGHT_QKV, 'v', "h.%d.attn.v_proj.weight", 'K', 'H', false},
    {WEIGHT_OUT, 'w', "h.%d.attn.out_proj.weight", 'H', 'Q', false},
    {WEIGHT_MLP_IN, 'w', "h.%d.mlp.fc_in.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN_BIAS, 'w', "h.%d.mlp.fc_in.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "h.%d.mlp.fc_out.weight", 'H', 'F', false},
    {WEIGHT_MLP_OUT_BIAS, 'w', "h.%d.mlp.fc_out.bias", '0', 'H', false},
    {0},
};
static const struct inventory gpt_neox[] = {
    {WEIGHT_EMBED, 'w', "embed_in.weight", 'V', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "final_layer_norm.weight", '0', 'H', false},
    {WEIGHT_FINAL_NORM_BIAS, 'w', "final_layer_norm.bias", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "layers.%d.input_layernorm.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM_BIAS, 'w', "layers.%d.input_layernorm.bias", '0', 'H', false},
    {WEIGHT_QKV, 'P', "layers.%d.attention.query_key_value.weight", 'T', 'H', false},
    {WEIGHT_QKV_BIAS, 'P', "layers.%d.attention.query_key_value.bias", '0', 'T', false},
    {WEIGHT_OUT, 'w', "layers.%d.attention.dense.weight", 'H', 'Q', false},
    {WEIGHT_OUT_BIAS, 'w', "layers.%d.attention.dense.bias", '0', 'H', false},
    {WEIGHT_MLP_NORM, 'w', "layers.%d.post_attention_layernorm.weight", '0', 'H', false},
    {WEIGHT_MLP_NORM_BIAS, 'w', "layers.%d.post_attention_layernorm.bias", '0', 'H', false},
    {WEIGHT_MLP_IN, 'w', "layers.%d.mlp.dense_h_to_4h.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN_BIAS, 'w', "layers.%d.mlp.dense_h_to_4h.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "layers.%d.mlp.dense_4h_to_h.weight", 'H', 'F', false},
    {WEIGHT_MLP_OUT_BIAS, 'w', "layers.%d.mlp.dense_4h_to_h.bias", '0', 'H', false},
    {0},
};
static const struct inventory bloom[] = {
    {WEIGHT_EMBED, 'w', "word_embeddings.weight", 'V', 'H', false},
    {WEIGHT_EMBED_NORM, 'w', "word_embeddings_layernorm.weight", '0', 'H', false},
    {WEIGHT_EMBED_NORM_BIAS, 'w', "word_embeddings_layernorm.bias", '0', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "ln_f.weight", '0', 'H', false},
    {WEIGHT_FINAL_NORM_BIAS, 'w', "ln_f.bias", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "h.%d.input_layernorm.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM_BIAS, 'w', "h.%d.input_layernorm.bias", '0', 'H', false},
    {WEIGHT_QKV, 'P', "h.%d.self_attention.query_key_value.weight", 'T', 'H', false},
    {WEIGHT_QKV_BIAS, 'P', "h.%d.self_attention.query_key_value.bias", '0', 'T', false},
    {WEIGHT_OUT, 'w', "h.%d.self_attention.dense.weight", 'H', 'Q', false},
    {WEIGHT_OUT_BIAS, 'w', "h.%d.self_attention.dense.bias", '0', 'H', false},
    {WEIGHT_MLP_NORM, 'w', "h.%d.post_attention_layernorm.weight", '0', 'H', false},
    {WEIGHT_MLP_NORM_BIAS, 'w', "h.%d.post_attention_layernorm.bias", '0', 'H', false},
    {WEIGHT_MLP_IN, 'w', "h.%d.mlp.dense_h_to_4h.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN_BIAS, 'w', "h.%d.mlp.dense_h_to_4h.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "h.%d.mlp.dense_4h_to_h.weight", 'H', 'F', false},
    {WEIGHT_MLP_OUT_BIAS, 'w', "h.%d.mlp.dense_4h_to_h.bias", '0', 'H', false},
    {0},
};
/* OPT with projections and post-norm, as 350m: no final norm. */
static const struct inventory opt[] = {
    {WEIGHT_EMBED, 'w', "decoder.embed_tokens.weight", 'V', 'E', false},
    {WEIGHT_POSITION, 'w', "decoder.embed_positions.weight", 'P', 'H', false},
    {WEIGHT_PROJECT_IN, 'w', "decoder.project_in.weight", 'H', 'E', false},
    {WEIGHT_PROJECT_OUT, 'w', "decoder.project_out.weight", 'E', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "decoder.layers.%d.self_attn_layer_norm.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM_BIAS, 'w', "decoder.layers.%d.self_attn_layer_norm.bias", '0', 'H', false},
    {WEIGHT_QKV, 'q', "decoder.layers.%d.self_attn.q_proj.weight", 'Q', 'H', false},
    {WEIGHT_QKV, 'k', "decoder.layers.%d.self_attn.k_proj.weight", 'K', 'H', false},
    {WEIGHT_QKV, 'v', "decoder.layers.%d.self_attn.v_proj.weight", 'K', 'H', false},
    {WEIGHT_QKV_BIAS, 'q', "decoder.layers.%d.self_attn.q_proj.bias", '0', 'Q', false},
    {WEIGHT_QKV_BIAS, 'k', "decoder.layers.%d.self_attn.k_proj.bias", '0', 'K', false},
    {WEIGHT_QKV_BIAS, 'v', "decoder.layers.%d.self_attn.v_proj.bias", '0', 'K', false},
    {WEIGHT_OUT, 'w', "decoder.layers.%d.self_attn.out_proj.weight", 'H', 'Q', false},
    {WEIGHT_OUT_BIAS, 'w', "decoder.layers.%d.self_attn.out_proj.bias", '0', 'H', false},
    {WEIGHT_MLP_NORM, 'w', "decoder.layers.%d.final_layer_norm.weight", '0', 'H', false},
    {WEIGHT_MLP_NORM_BIAS, 'w', "decoder.layers.%d.final_layer_norm.bias", '0', 'H', false},
    {WEIGHT_MLP_IN, 'w', "decoder.layers.%d.fc1.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN_BIAS, 'w', "decoder.layers.%d.fc1.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "decoder.layers.%d.fc2.weight", 'H', 'F', false},
    {WEIGHT_MLP_OUT_BIAS, 'w', "decoder.layers.%d.fc2.bias", '0', 'H', false},
    {0},
};
/* All tensors that Llama-like models can have; the config decides (see `present`). */
static const struct inventory llama[] = {
    {WEIGHT_EMBED, 'w', "embed_tokens.weight", 'V', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "norm.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "layers.%d.input_layernorm.weight", '0', 'H', false},
    {WEIGHT_QKV, 'q', "layers.%d.self_attn.q_proj.weight", 'Q', 'H', false},
    {WEIGHT_QKV, 'k', "layers.%d.self_attn.k_proj.weight", 'K', 'H', false},
    {WEIGHT_QKV, 'v', "layers.%d.self_attn.v_proj.weight", 'K', 'H', false},
    {WEIGHT_QKV_BIAS, 'q', "layers.%d.self_attn.q_proj.bias", '0', 'Q', false},
    {WEIGHT_QKV_BIAS, 'k', "layers.%d.self_attn.k_proj.bias", '0', 'K', false},
    {WEIGHT_QKV_BIAS, 'v', "layers.%d.self_attn.v_proj.bias", '0', 'K', false},
    {WEIGHT_Q_NORM, 'w', "layers.%d.self_attn.q_norm.weight", '0', 'D', false},
    {WEIGHT_K_NORM, 'w', "layers.%d.self_attn.k_norm.weight", '0', 'D', false},
    {WEIGHT_OUT, 'w', "layers.%d.self_attn.o_proj.weight", 'H', 'Q', false},
    {WEIGHT_OUT_BIAS, 'w', "layers.%d.self_attn.o_proj.bias", '0', 'H', false},
    {WEIGHT_MLP_NORM, 'w', "layers.%d.post_attention_layernorm.weight", '0', 'H', false},
    {WEIGHT_MLP_IN, 'g', "layers.%d.mlp.gate_proj.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN, 'u', "layers.%d.mlp.up_proj.weight", 'F', 'H', false},
    {WEIGHT_MLP_IN_BIAS, 'g', "layers.%d.mlp.gate_proj.bias", '0', 'F', false},
    {WEIGHT_MLP_IN_BIAS, 'u', "layers.%d.mlp.up_proj.bias", '0', 'F', false},
    {WEIGHT_MLP_OUT, 'w', "layers.%d.mlp.down_proj.weight", 'H', 'F', false},
    {WEIGHT_MLP_OUT_BIAS, 'w', "layers.%d.mlp.down_proj.bias", '0', 'H', false},
    {0},
};

/* Only layers with a mixture have these, in place of the MLP. */
static const struct inventory apart[] = {
    {WEIGHT_ROUTER, 'w', "layers.%d.mlp.gate.weight", 'X', 'H', false},
    {WEIGHT_EXPERTS_IN, 'g', "layers.%d.mlp.experts.%d.gate_proj.weight", 'M', 'H', false},
    {WEIGHT_EXPERTS_IN, 'u', "layers.%d.mlp.experts.%d.up_proj.weight", 'M', 'H', false},
    {WEIGHT_EXPERTS_OUT, 'w', "layers.%d.mlp.experts.%d.down_proj.weight", 'H', 'M', false},
    {WEIGHT_SHARED_IN, 'g', "layers.%d.mlp.shared_expert.gate_proj.weight", 'S', 'H', false},
    {WEIGHT_SHARED_IN, 'u', "layers.%d.mlp.shared_expert.up_proj.weight", 'S', 'H', false},
    {WEIGHT_SHARED_OUT, 'w', "layers.%d.mlp.shared_expert.down_proj.weight", 'H', 'S', false},
    {WEIGHT_SHARED_GATE, 'w', "layers.%d.mlp.shared_expert_gate.weight", '1', 'H', false},
    {0},
};
static const struct inventory together[] = {
    {WEIGHT_ROUTER, 'w', "layers.%d.mlp.gate.weight", 'X', 'H', false},
    {WEIGHT_EXPERTS_IN, 'A', "layers.%d.mlp.experts.gate_up_proj", 'N', 'H', false},
    {WEIGHT_EXPERTS_OUT, 'A', "layers.%d.mlp.experts.down_proj", 'H', 'M', false},
    {0},
};
static const struct inventory mixtral[] = {
    {WEIGHT_ROUTER, 'w', "layers.%d.block_sparse_moe.gate.weight", 'X', 'H', false},
    {WEIGHT_EXPERTS_IN, 'g', "layers.%d.block_sparse_moe.experts.%d.w1.weight", 'M', 'H', false},
    {WEIGHT_EXPERTS_IN, 'u', "layers.%d.block_sparse_moe.experts.%d.w3.weight", 'M', 'H', false},
    {WEIGHT_EXPERTS_OUT, 'w', "layers.%d.block_sparse_moe.experts.%d.w2.weight", 'H', 'M', false},
    {0},
};

static const struct inventory gpt_oss[] = {
    {WEIGHT_SINKS, 'w', "layers.%d.self_attn.sinks", '0', 'h', false},
    {WEIGHT_ROUTER, 'w', "layers.%d.mlp.router.weight", 'X', 'H', false},
    {WEIGHT_ROUTER_BIAS, 'w', "layers.%d.mlp.router.bias", '0', 'X', false},
    {WEIGHT_EXPERTS_IN, 'I', "layers.%d.mlp.experts.gate_up_proj", 'H', 'N', true},
    {WEIGHT_EXPERTS_IN_BIAS, 'w', "layers.%d.mlp.experts.gate_up_proj_bias", 'X', 'N', false},
    {WEIGHT_EXPERTS_OUT, 'A', "layers.%d.mlp.experts.down_proj", 'M', 'H', true},
    {WEIGHT_EXPERTS_OUT_BIAS, 'w', "layers.%d.mlp.experts.down_proj_bias", 'X', 'H', false},
    {0},
};

static const struct inventory phi3[] = {
    {WEIGHT_EMBED, 'w', "embed_tokens.weight", 'V', 'H', false},
    {WEIGHT_FINAL_NORM, 'w', "norm.weight", '0', 'H', false},
    {WEIGHT_ATTN_NORM, 'w', "layers.%d.input_layernorm.weight", '0', 'H', false},
    {WEIGHT_QKV, 'B', "layers.%d.self_attn.qkv_proj.weight", 'T', 'H', false},
    {WEIGHT_OUT, 'w', "layers.%d.self_attn.o_proj.weight", 'H', 'Q', false},
    {WEIGHT_MLP_NORM, 'w', "layers.%d.post_attention_layernorm.weight", '0', 'H', false},
    {WEIGHT_MLP_IN, 'G', "layers.%d.mlp.gate_up_proj.weight", 'G', 'H', false},
    {WEIGHT_MLP_OUT, 'w', "layers.%d.mlp.down_proj.weight", 'H', 'F', false},
    {0},
};

static const struct fixture fixtures[] = {
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":20,\"n_head\":5,\"n_inner\":37,\"vocab_size\":53,"
     "\"n_positions\":11}",
     "", gpt2, NULL, NULL},
    {"{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_embd\":12,\"n_head\":2,\"vocab_size\":19,\"n_positions\":7,"
     "\"tie_word_embeddings\":false}",
     "transformer.", gpt2, "lm_head.weight", NULL},
    {"{\"model_type\":\"gptj\",\"n_layer\":2,\"n_embd\":28,\"n_head\":7,\"rotary_dim\":2,\"vocab_size\":101}",
     "transformer.", gptj, "lm_head.weight", NULL},
    {"{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"hidden_size\":24,\"num_attention_heads\":3,"
     "\"intermediate_size\":31,\"vocab_size\":67}",
     "gpt_neox.", gpt_neox, "embed_out.weight", NULL},
    {"{\"model_type\":\"bloom\",\"n_layer\":2,\"n_embed\":18,\"num_attention_heads\":9,\"vocab_size\":150}", "", bloom,
     NULL, NULL},
    {"{\"model_type\":\"opt\",\"num_hidden_layers\":2,\"hidden_size\":30,\"num_attention_heads\":6,\"ffn_dim\":45,"
     "\"vocab_size\":40,\"max_position_embeddings\":9,\"word_embed_proj_dim\":13,\"do_layer_norm_before\":false}",
     "model.", opt, NULL, NULL},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":2,\"hidden_size\":21,\"num_attention_heads\":28,"
     "\"num_key_value_heads\":4,\"head_dim\":2,\"intermediate_size\":131,\"vocab_size\":77}",
     "model.", llama, "lm_head.weight", NULL},
    {"{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"hidden_size\":24,\"num_attention_heads\":6,"
     "\"num_key_value_heads\":2,\"intermediate_size\":33,\"vocab_size\":5,\"attention_bias\":true,\"mlp_bias\":true,"
     "\"tie_word_embeddings\":true}",
     "", llama, NULL, NULL},
    {"{\"model_type\":\"qwen2\",\"num_hidden_layers\":2,\"hidden_size\":28,\"num_attention_heads\":14,"
     "\"num_key_value_heads\":2,\"intermediate_size\":64,\"vocab_size\":96}",
     "model.", llama, "lm_head.weight", NULL},
    {"{\"model_type\":\"qwen3\",\"num_hidden_layers\":2,\"hidden_size\":16,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":1,\"head_dim\":6,\"intermediate_size\":1100,\"vocab_size\":1200}",
     "model.", llama, "lm_head.weight", NULL},
    {"{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":2,\"hidden_size\":18,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":31,\"vocab_size\":40,\"num_experts\":3,"
     "\"num_experts_per_tok\":2,\"moe_intermediate_size\":21,\"decoder_sparse_step\":2}",
     "model.", llama, "lm_head.weight", apart},
    {"{\"model_type\":\"qwen3_moe\",\"num_hidden_layers\":2,\"hidden_size\":18,\"num_attention_heads\":4,"
     "\"num_key_value_heads\":2,\"head_dim\":6,\"intermediate_size\":31,\"vocab_size\":40,\"num_experts\":4,"
     "\"num_experts_per_tok\":2,\"moe_intermediate_size\":131,\"mlp_only_layers\":[1]}",
     "", llama, "lm_head.weight", together},
    {"{\"model_type\":\"qwen2_moe\",\"num_hidden_layers\":1,\"hidden_size\":20,\"num_attention_heads\":5,"
     "\"num_key_value_heads\":1,\"vocab_size\":40,\"num_experts\":2,\"num_experts_per_tok\":1,"
     "\"moe_intermediate_size\":9,\"shared_expert_intermediate_size\":37}",
     "model.", llama, "lm_head.weight", apart},
    {"{\"model_type\":\"mixtral\",\"num_hidden_layers\":2,\"hidden_size\":12,\"num_attention_heads\":3,"
     "\"num_key_value_heads\":1,\"intermediate_size\":70,\"vocab_size\":40,\"num_local_experts\":3}",
     "model.", llama, "lm_head.weight", mixtral},
    {"{\"model_type\":\"gpt_oss\",\"num_hidden_layers\":2,\"hidden_size\":14,\"num_attention_heads\":5,\"head_dim\":4,"
     "\"num_key_value_heads\":1,\"intermediate_size\":11,\"vocab_size\":40,\"num_local_experts\":3,"
     "\"num_experts_per_tok\":2,\"tie_word_embeddings\":true}",
     "model.", llama, NULL, gpt_oss},
    {"{\"model_type\":\"phi3\",\"num_hidden_layers\":2,\"hidden_size\":20,\"num_attention_heads\":10,"
     "\"num_key_value_heads\":2,\"intermediate_size\":45,\"vocab_size\":40}",
     "model.", phi3, "lm_head.weight", NULL},
};

#endif
