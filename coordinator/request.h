/* coordinator/request.h - one prompt on its way to text. Rank 0 only. */
#ifndef COORDINATOR_REQUEST_H
#define COORDINATOR_REQUEST_H

#include "coordinator/stop.h"
#include "coordinator/tokenizer/tokenizer.h"
#include "kernels/ops.h"

enum finish_reason { FINISH_NONE, FINISH_STOP, FINISH_LENGTH, FINISH_ERROR, FINISH_CANCELLED, FINISH_TIMEOUT };

#define REQUEST_MAX_STOP_IDS 64

/* How text is made and ended; what all requests of a run share. */
struct request_rules {
    struct sampling sampling; /* prompt_len is filled per request */
    int max_tokens;
    bool ignore_eos;
    int n_stop_ids, stop_id[REQUEST_MAX_STOP_IDS]; /* end-of-text ids (unless ignored) and --stop-token-ids */
    struct stop_strings stop;
    bool keep_stop, skip_special;
    bool want_logprobs;
};

struct request {
    const struct request_rules *rules; /* borrowed */
    int index;                         /* place in the input, from 0 */
    struct token_list prompt, output;
    char *prompt_text;        /* owned; NULL when the prompt came as ids */
    size_t prompt_bytes;      /* of prompt_text */
    struct sampled *logprobs; /* [output.n] if rules->want_logprobs */
    struct text_buffer text;
    size_t released; /* bytes of text that are final */
    struct detokenizer *detokenizer;
    enum finish_reason finish;
    struct err error; /* FINISH_ERROR */

    /* The scheduler's. */
    int slot;             /* -1: not running */
    int n_fed;            /* tokens of prompt and output that plans have fed */
    int n_planned;        /* tokens whose sampling has been planned */
    int n_in_flight;      /* of these, results not seen yet */
    int n_blocks, *block; /* KV blocks held */
    struct request *next;
};

/* Take a token into the output: text, stop rules. Sets r->finish when the sequence is done. t NULL: no text is made, and
 * only rules->max_tokens ends the sequence. Returns -1 and *e only when the host is out of memory. */
int request_take(struct request *r, const struct tokenizer *t, const struct sampled *s, struct err *e);

void request_close(struct request *r);

/* "stop", "length", "error", "cancelled", "timeout" */
const char *finish_name(enum finish_reason f);

#endif
