/* coordinator/chat_format.c - see chat_format.h. tests/unit/make_chat_fixtures.py checks each against its templates. */
#include "coordinator/chat_format.h"

#include <stddef.h>

#define CHATML_ROLE(role)                                           \
    {                                                               \
        role, "<|im_start|>" role "\n", NULL, "<|im_end|>\n", false \
    }
#define CHATML_ANY                                        \
    {                                                     \
        NULL, "<|im_start|>", "\n", "<|im_end|>\n", false \
    }
#define CHATML_OPEN         "<|im_start|>assistant\n"
#define CHATML_SYSTEM(text) "<|im_start|>system\n" text "<|im_end|>\n"
#define LLAMA3_HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3_ROLE(role)                                    \
    {                                                        \
        role, LLAMA3_HEADER(role), NULL, "<|eot_id|>", false \
    }
#define LLAMA31_PREFACE LLAMA3_HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: "

const struct chat_format chat_formats[] = {
    {.name = "chatml",
     .role = {CHATML_ANY},
     .generation = CHATML_OPEN,
     .digest = {0x88bf4138d5c826f0, 0xa41d6bae9b9141bc, 0x773d13e188afc917, 0x17fde6ecda9c7c01}},
    {.name = "qwen-2",
     .role = {CHATML_ANY},
     .generation = CHATML_OPEN,
     .default_system = CHATML_SYSTEM("You are a helpful assistant."),
     .digest = {0x8a87094e0e1e24c5, 0x75e88977b2787cd7}},
    {.name = "qwen-2.5",
     .generation = CHATML_OPEN,
     .role = {CHATML_ROLE("user"), CHATML_ROLE("assistant"), CHATML_ROLE("system")},
     .default_system = CHATML_SYSTEM("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
     .digest = {0xe642ce246d7f2e3d}},
    {.name = "qwen-3",
     .kind = CHAT_REASONING,
     .generation = CHATML_OPEN,
     .role = {CHATML_ROLE("user"), CHATML_ROLE("assistant"), CHATML_ROLE("system")},
     .digest = {0x2bfdb7aa9754484e}},
    {.name = "smollm",
     .role = {CHATML_ANY},
     .generation = CHATML_OPEN,
     .default_system = CHATML_SYSTEM("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
     .digest = {0x45ec583d4d25bc3a, 0x09b5156a5cf6abfc}},
    {.name = "llama-2",
     .kind = CHAT_INST,
     .trim = true,
     .inst = {.open = "[INST] ",
              .close = " [/INST]",
              .bos_each = true,
              .system = SYSTEM_FIRST,
              .before = " ",
              .behind = " "},
     .digest = {0x4d1512049817743d, 0xf344eecf1bd3a427, 0x77f52e8441e4e7e7, 0x3e8b632df301bf05}},
    {.name = "llama-3",
     .bos = true,
     .trim = true,
     .generation = LLAMA3_HEADER("assistant"),
     .role = {{NULL, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", false}},
     .digest = {0x0e60067a5537498e, 0x32844fd43eab01d2}},
    {.name = "llama-3.1",
     .bos = true,
     .trim = true,
     .generation = LLAMA3_HEADER("assistant"),
     .preface = LLAMA31_PREFACE,
     .date = "26 Jul 2024",
     .preface_separator = "\n\n",
     .preface_end = "<|eot_id|>",
     .role = {LLAMA3_ROLE("user"), LLAMA3_ROLE("assistant"), LLAMA3_ROLE("system")},
     .digest = {0xcc0368e1ffb6b958}},
    {.name = "llama-3.2",
     .bos = true,
     .trim = true,
     .generation = LLAMA3_HEADER("assistant"),
     .preface = LLAMA31_PREFACE,
     .preface_separator = "\n\n",
     .preface_end = "<|eot_id|>",
     .role = {LLAMA3_ROLE("user"), LLAMA3_ROLE("assistant"), LLAMA3_ROLE("system")},
     .digest = {0x368f4c34b8554414}},
    {.name = "mistral",
     .kind = CHAT_INST,
     .bos = true,
     .inst = {.open = "[INST] ", .close = " [/INST]"},
     .digest = {0x8c734b90b4f8d84d}},
    {.name = "mistral-0.1",
     .kind = CHAT_INST,
     .bos = true,
     .inst = {.open = "[INST] ", .close = " [/INST]", .end = " "},
     .digest = {0xc730acc029ce6ee0}},
    {.name = "mistral-nemo",
     .kind = CHAT_INST,
     .bos = true,
     .inst = {.open = "[INST]", .close = "[/INST]", .system = SYSTEM_LAST},
     .digest = {0xc134bf40d6f56d76}},
    {.name = "zephyr",
     .generation = "<|assistant|>\n",
     .role = {{"user", "<|user|>\n", NULL, "\n", true},
              {"assistant", "<|assistant|>\n", NULL, "\n", true},
              {"system", "<|system|>\n", NULL, "\n", true}},
     .digest = {0xcd8b49000db02c2c}},
    {.name = "deepseek-llm",
     .bos = true,
     .generation = "Assistant:",
     .role = {{"user", "User: ", NULL, "\n\n", false},
              {"assistant", "Assistant: ", NULL, NULL, true},
              {"system", NULL, NULL, "\n\n", false}},
     .digest = {0x5111253f4aa4a502, 0x446f9fd78fcb0756}},
    {.name = "openchat",
     .bos = true,
     .generation = "GPT4 Correct Assistant:",
     .role = {{"user", "GPT4 Correct User: ", NULL, "<|end_of_turn|>", false},
              {"assistant", "GPT4 Correct Assistant: ", NULL, "<|end_of_turn|>", false},
              {"system", "GPT4 Correct System: ", NULL, "<|end_of_turn|>", false}},
     .digest = {0x51c8c94545ac4017}},
    {.name = "plain", .role = {{NULL, NULL, NULL, NULL, true}}, .digest = {0x008be9440142e81d}},
    {.name = NULL},
};
