/* tests/unit/config_texts.h - beginnings of config.json. */
#ifndef TESTS_UNIT_CONFIG_TEXTS_H
#define TESTS_UNIT_CONFIG_TEXTS_H

#define V2      "{\"model_type\":\"deepseek_v2\",\"num_experts_per_tok\":6,"
#define V3      "{\"model_type\":\"deepseek_v3\","
#define L4      "{\"model_type\":\"llama4_text\","
#define LITE    "{\"model_type\":\"glm4_moe_lite\","
#define DOTS    "{\"model_type\":\"dots1\",\"n_routed_experts\":128,\"num_experts_per_tok\":6,"
#define HYBRID  "{\"model_type\":\"granitemoehybrid\","
#define ERNIE   "{\"model_type\":\"ernie4_5_moe\","
#define EXAMOE  "{\"model_type\":\"exaone_moe\","
#define K2      "{\"model_type\":\"kimi_k2\","
#define GLM     "{\"model_type\":\"glm4_moe\",\"head_dim\":128,"
#define EXAONE  "{\"model_type\":\"exaone4\","
#define MIXTRAL "{\"model_type\":\"mixtral\","
#define LLAMA   "{\"model_type\":\"llama\","
#define BIG     "999999999999"
#define SCALING LLAMA "\"rope_scaling\":"

#endif
