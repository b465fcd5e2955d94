/* protocol/rules.c - see rules.h. */
#include "protocol/rules.h"

#include <stddef.h>

const char *finish_name(enum finish_reason f)
{
    static const char *const name[FINISH_REASONS] = {"unfinished", "stop", "length", "cancelled", "timeout", "error"};
    return name[f];
}

int request_rules_stop(struct request_rules *rules, const int32_t *id, int n)
{
    struct sampling *s = &rules->sampling;
    int n_eos = s->n_eos;
    if (n > REQUEST_MAX_STOP_IDS - SAMPLING_MAX_EOS || (s->min_tokens > 0 && n_eos + n > SAMPLING_MAX_EOS))
        return -1;
    for (int i = 0; i < n; i++) {
        rules->stop_id[rules->n_stop_ids++] = id[i];
        if (s->min_tokens > 0)
            s->eos[s->n_eos++] = id[i];
    }
    for (int i = 0; i < n_eos && !rules->ignore_eos; i++)
        rules->stop_id[rules->n_stop_ids++] = s->eos[i];
    return 0;
}

static int check_beams(const struct search *how, const struct request_rules *rules, const char **field, struct err *e)
{
    const struct sampling *p = &rules->sampling;
    *field = "num_beams";
    if (how->num_beams + rules->n_stop_ids > SAMPLING_MAX_TOP)
        return ERR(e, ERR_UNSUPPORTED, "%d beams and %d ids that end a text, expected at most %d together",
                   how->num_beams, rules->n_stop_ids, SAMPLING_MAX_TOP);
    *field = "n";
    if (how->n > how->num_beams)
        return ERR(e, ERR_INPUT, "%d choices of %d beams, expected no more than beams", how->n, how->num_beams);
    *field = "best_of";
    if (how->best_of != 0 && how->best_of != how->n)
        return ERR(e, ERR_UNSUPPORTED, "best_of %d with beam search, expected none", how->best_of);
    *field = "temperature";
    if (p->temperature != 0)
        return ERR(e, ERR_UNSUPPORTED, "temperature %g with beam search, expected 0", (double)p->temperature);
    *field = p->repetition_penalty != 1.0f  ? "repetition_penalty"
             : p->presence_penalty != 0.0f  ? "presence_penalty"
             : p->frequency_penalty != 0.0f ? "frequency_penalty"
             : p->n_bias > 0                ? "logit_bias"
             : rules->stop != NULL          ? "stop"
                                            : "";
    if (**field != '\0')
        return ERR(e, ERR_UNSUPPORTED, "not supported with beam search");
    return 0;
}

int search_check(const struct search *how, const struct request_rules *rules, const char **field, struct err *e)
{
    *field = "n";
    if (how->n < 1 || how->n > RULES_MAX_CHOICES)
        return ERR(e, ERR_INPUT, "found %d, expected an integer in [1, %d]", how->n, RULES_MAX_CHOICES);
    *field = "best_of";
    if (how->best_of != 0 && (how->best_of < how->n || how->best_of > RULES_MAX_CHOICES))
        return ERR(e, ERR_INPUT, "found %d, expected an integer in [n = %d, %d]", how->best_of, how->n,
                   RULES_MAX_CHOICES);
    *field = "num_beams";
    if (how->num_beams < 1 || how->num_beams > BEAM_MAX)
        return ERR(e, ERR_INPUT, "found %d, expected an integer in [1, %d]", how->num_beams, BEAM_MAX);
    return how->num_beams > 1 ? check_beams(how, rules, field, e) : 0;
}
