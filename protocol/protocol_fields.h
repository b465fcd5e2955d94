/* protocol/protocol_fields.h - the fields of a message by what they mean, whatever name they were given under. */
#ifndef PROTOCOL_PROTOCOL_FIELDS_H
#define PROTOCOL_PROTOCOL_FIELDS_H

#include "base/json.h"
#include "protocol/protocol.h"

enum field_id {
    FIELD_OP,
    FIELD_PROTOCOL,
    FIELD_REQUEST_ID,
    FIELD_MODEL,
    FIELD_PROMPT,
    FIELD_MESSAGES,
    FIELD_STREAM,
    FIELD_MAX_TOKENS,
    FIELD_MIN_TOKENS,
    FIELD_TEMPERATURE,
    FIELD_DO_SAMPLE,
    FIELD_TOP_P,
    FIELD_TOP_K,
    FIELD_MIN_P,
    FIELD_SEED,
    FIELD_REPETITION_PENALTY,
    FIELD_PRESENCE_PENALTY,
    FIELD_FREQUENCY_PENALTY,
    FIELD_LOGIT_BIAS,
    FIELD_STOP,
    FIELD_STOP_TOKEN_IDS,
    FIELD_EOS_TOKEN_ID,
    FIELD_IGNORE_EOS,
    FIELD_KEEP_STOP,
    FIELD_N,
    FIELD_BEST_OF,
    FIELD_NUM_BEAMS,
    FIELD_USE_BEAM_SEARCH,
    FIELD_LENGTH_PENALTY,
    FIELD_EARLY_STOPPING,
    FIELD_LOGPROBS,
    FIELD_TOP_LOGPROBS,
    FIELD_PROMPT_LOGPROBS,
    FIELD_RETURN_TOKEN_IDS,
    FIELD_ECHO,
    FIELD_EXCLUDE_INPUT,
    FIELD_SKIP_SPECIAL_TOKENS,
    FIELD_ADD_SPECIAL_TOKENS,
    FIELD_PARSE_SPECIAL,
    FIELD_ADD_GENERATION_PROMPT,
    FIELD_CONTINUE_FINAL_MESSAGE,
    FIELD_PREDICTION,
    FIELD_TOOLS,
    FIELD_TOOL_CHOICE,
    FIELD_PARALLEL_TOOL_CALLS,
    FIELD_INCLUDE_REASONING,
    FIELD_DOCUMENTS,
    FIELD_CHAT_TEMPLATE_KWARGS,
    FIELD_RESPONSE_FORMAT,
    FIELD_STRUCTURED_OUTPUTS,
    FIELD_PRIORITY,
    FIELD_TIMEOUT_MS,
    FIELD_TOKEN_IDS,
    FIELD_RETURN_TOKEN_STRS,
    FIELD_WAIT,
    FIELD_ON_BEHALF_OF,
    FIELD_PINNED,
    N_FIELDS
};

struct fields { /* borrowed from the message; null members count as absent */
    const json_t *value[N_FIELDS];
    const char *name[N_FIELDS];   /* as the client wrote it */
    const char *inside[N_FIELDS]; /* "parameters", "sampling_params"; NULL: at the top */
};

/* Sort the members of a message by field. Refuses unknown and unimplemented fields, those that the op does not have,
 * and a field that is given twice. */
int fields_collect(struct fields *f, const json_t *object, enum protocol_op op, struct protocol_error *error);

/* Values for fields that were not given, by canonical name; NULL: none. If the message itself says that nothing is
 * sampled (do_sample false, beams), no default temperature applies. */
void fields_default(struct fields *f, const json_t *defaults);

/* The field with this canonical name, which must exist. */
enum field_id fields_find(const char *name);

/* The name for messages: "parameters.top_k", or the canonical one when it was not given. item >= 0: "prompt[3]". */
const char *fields_name(const struct fields *f, enum field_id id, long item, char name[64]);

/* Member access. An absent one is `missing`. One of another type, or outside [low, high], is `missing`, too,
 * and *error is set. */
int64_t fields_int(const struct fields *f, enum field_id id, int64_t missing, int64_t low, int64_t high,
                   struct protocol_error *error);
double fields_real(const struct fields *f, enum field_id id, double missing, double low, double high,
                   struct protocol_error *error);
bool fields_bool(const struct fields *f, enum field_id id, bool missing, struct protocol_error *error);

/* Token ids: an integer (if one_is_enough) or a list of at most `most`. Appends to *out. */
int fields_ids(const struct fields *f, enum field_id id, bool one_is_enough, size_t most, int vocab,
               struct token_list *out, struct protocol_error *error);

/* Record a failure of this field (its item, if >= 0): 400. Returns -1. */
int fields_fail(const struct fields *f, enum field_id id, long item, struct protocol_error *error, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* Append the token ids of a JSON list, all in [0, vocab). `name` names the list in *error. */
int fields_read_ids(const json_t *list, int vocab, const char *name, struct token_list *out,
                    struct protocol_error *error);

#endif
