/* text/calls/format.c - recognises the form of calls that a chat template writes; the marks of all forms; ids of calls.
 * See calls.h. */
#include "text/calls/calls.h"

#include <stdio.h>
#include <string.h>

static bool has(const char *source, size_t bytes, const char *text)
{
    return memmem(source, bytes, text, strlen(text)) != NULL;
}

enum calls_format calls_format_of(const char *source, size_t bytes)
{
    bool xml = has(source, bytes, "<function=") || has(source, bytes, "<arg_key>"); /* other forms with the same tags */
    if (has(source, bytes, "<|channel|>") && has(source, bytes, "<|message|>"))
        return CALLS_HARMONY;
    if (has(source, bytes, "[TOOL_CALLS]"))
        return has(source, bytes, "[ARGS]") ? CALLS_MISTRAL_ARGS : CALLS_MISTRAL;
    if (has(source, bytes, "<tool_call>"))
        return xml ? CALLS_NONE : CALLS_HERMES;
    if (has(source, bytes, "<|python_tag|>") || has(source, bytes, "\"parameters\": dictionary of argument name"))
        return CALLS_LLAMA3;
    return CALLS_NONE;
}

const char *calls_format_name(enum calls_format format)
{
    static const char *const names[] = {"none", "hermes", "llama3_json", "mistral", "mistral_args", "harmony"};
    return names[format];
}

const char *const *calls_marks(void)
{
    static const char *const marks[] = {"<tool_call>",    "</tool_call>",  "<think>",     "</think>",
                                        "<|python_tag|>", "[TOOL_CALLS]",  "[CALL_ID]",   "[ARGS]",
                                        "<|channel|>",    "<|constrain|>", "<|message|>", "<|start|>",
                                        "<|end|>",        "<|call|>",      "<|return|>",  NULL};
    return marks;
}

/* The finalizer of splitmix64: every bit of x moves every bit of the result. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void calls_id(char id[CALLS_ID_BYTES], enum calls_format format, uint64_t salt, int call)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    bool mistral = format == CALLS_MISTRAL || format == CALLS_MISTRAL_ARGS;
    int n = mistral ? 9 : 16, begin = mistral ? 0 : snprintf(id, CALLS_ID_BYTES, "call_");
    uint64_t bits = 0;
    for (int i = 0; i < n; i++, bits /= 62) {
        if (i % 8 == 0)
            bits = mix(mix(salt + 0x9e3779b97f4a7c15u * (uint64_t)(call + 1)) + (uint64_t)i);
        id[begin + i] = letters[bits % 62];
    }
    id[begin + n] = '\0';
}
