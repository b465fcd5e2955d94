/* kernels/cuda/step/persistent_experts_layout.cuh - shared memory of a step with a mixture of experts: as deep a ring
 * as leaves room for the tokens. */
#ifndef STEP_PERSISTENT_EXPERTS_LAYOUT_CUH
#define STEP_PERSISTENT_EXPERTS_LAYOUT_CUH

#include "kernels/cuda/step/persistent_attention_item.cuh"
#include "kernels/cuda/step/persistent_experts_host.cuh"
#include "kernels/cuda/step/persistent_experts_route.cuh"
#include "kernels/cuda/step/persistent_latent.cuh"

/* Bytes: maximum of a slot with two tiles of a second product; minimum of a packed ring, if that leaves room for some
 * of the pairs' activations, and its maximum. */
#define SLOT_MOST   (52 * 1024)
#define RING_LEAST  (2 * RING_SLOT_BYTES)
#define RING_WANTED (72 * 1024)
#define RING_MOST   (5 * RING_SLOT_BYTES)

/* Elements of the activations of a step's second products, in layers of one kind. */
static inline int second_inputs(const struct expert_args *a, int n_tokens, int common, bool routed)
{
    int columns = a->common[common].in.rows, pairs = routed ? a->how.n_chosen * a->pair_pitch : 0;
    return n_tokens * (pairs + (columns > 0 ? expert_pair_pitch(columns) : 0));
}

static inline int input_bytes(const struct chain_product &p, int n_blocks, int n_tokens)
{
    return chain_make_share(p, 0, n_blocks).n_spans * CHAIN_WARPS * n_tokens * STEP_COLUMNS * 2;
}

/* The first product's activations, if they are converted for codes. */
static inline int recoded_bytes(const struct expert_step *x, int n_tokens)
{
    int cols = x->p->args.product[2].cols;
    return x->form == FORM_E2M1   ? recoded_columns<FORM_E2M1>(cols) * n_tokens * 2
           : x->form == FORM_E4M3 ? recoded_columns<FORM_E4M3>(cols) * n_tokens * 2
                                  : 0;
}

/* Are the keys of the choice behind the input of the first products? */
static inline bool keys_behind(const struct expert_step *x, int n_tokens)
{
    return x->plain && n_tokens > 1;
}

/* The input of the router and of the first products. */
static inline int first_input(const struct expert_step *x, int n_blocks, int n_tokens)
{
    return input_bytes(x->args.router, n_blocks, n_tokens) + recoded_bytes(x, n_tokens);
}

/* Maximum of activations in shared memory. places: pairs that fit at once */
static inline int most_input(const struct expert_step *x, int n_blocks, int n_tokens, int places)
{
    const struct chain_args *a = &x->p->args;
    bool latents = x->args.latents.layers != nullptr;
    int input = latents ? (int)sizeof(latent_scratch) : attend_scratch_bytes(a->head_dim);
    input = max(input, x->form != FORM_NONE ? 2 * places * x->args.pair_pitch
                                            : 2 * second_inputs(&x->args, n_tokens, COMMON_BESIDE, true));
    input = max(input, 2 * second_inputs(&x->args, n_tokens, COMMON_ALONE, false));
    input = max(input, first_input(x, n_blocks, n_tokens) +
                           (keys_behind(x, n_tokens) ? expert_keys_bytes(x->args.how, n_tokens) : 0));
    for (const struct chain_product &p : a->product) /* except for that of the experts' results */
        if (p.input != INPUT_ACTIVATED)
            input = max(input, input_bytes(p, n_blocks, n_tokens));
    return input;
}

/* Shared memory in a step of n tokens, with a ring of `slots` slots in `ring` bytes. args: receives its offsets beyond
 * chain_args. */
static inline struct chain_layout make_layout(const struct expert_step *x, int n_blocks, int slots, int ring,
                                              int n_tokens, int places, struct expert_args *args)
{
    const struct chain_args *a = &x->p->args;
    struct chain_layout l = {};
    bool latents = x->args.latents.layers != nullptr, packed = x->form != FORM_NONE;
    for (int b = 0; b < n_blocks; b++) {
        struct chain_share s = chain_make_share(a->product[CHAIN_PRODUCTS - 1], b, n_blocks);
        l.x_rows = max(l.x_rows, s.end - s.begin);
    }
    l.bias_rows = x->bias_rows;
    int *const offset[] = {&l.groups,         &l.input,        &l.partial, &l.stats,      &l.bias,        &l.scales,
                           &l.residual,       &l.kept,         &l.cos_sin, &l.layers,     &l.tokens,      &l.shares,
                           &l.attend,         &l.barriers,     &l.hold,    &args->choice, &args->more_at, &args->gates,
                           &args->latents.at, &args->route.at, &l.bytes};
    const int size[] = {slots * group_bytes(x->p->form, a->group_maps != nullptr, a->group_zeros),
                        most_input(x, n_blocks, n_tokens, places),
                        2 * CHAIN_WARPS * n_tokens * CHAIN_ROWS * 4,
                        n_tokens * CHAIN_WARPS * 16,
                        2 * l.bias_rows * 4,
                        a->scales != nullptr ? 2 * l.bias_rows * 4 : 0,
                        n_tokens * l.x_rows * 4,
                        x->has_biases ? n_tokens * l.x_rows * 4 : 0,
                        n_tokens * a->rope_dims * 4,
                        (a->n_layers + 1) * (int)sizeof(struct chain_layer),
                        3 * n_tokens * 4,
                        (CHAIN_PRODUCTS + 1) * (int)sizeof(struct chain_share),
                        (int)sizeof(struct attend_shares),
                        slots * (packed ? 2 * 8 + 2 * 4 : 2 * 8),
                        2 * (int)sizeof(int),
                        expert_choice_bytes(x->args.how, n_tokens) +
                            (keys_behind(x, n_tokens) ? 0 : expert_keys_bytes(x->args.how, n_tokens)),
                        a->n_layers * (int)sizeof(struct expert_layer),
                        x->has_gates ? CHAIN_WARPS * n_tokens * 4 : 0,
                        latents ? latent_tables_bytes(a->n_layers) : 0,
                        x->lone != nullptr && n_tokens == 1 ? route_bytes(x->args.how.n_experts, l.x_rows) : 0};
    place_shared(offset, size, ring);
    args->codes.places = places;
    args->codes.ring = ring;
    args->codes.input = l.input + input_bytes(x->args.router, n_blocks, n_tokens);
    args->keys = keys_behind(x, n_tokens) ? l.input + first_input(x, n_blocks, n_tokens) - args->choice
                                          : expert_choice_bytes(x->args.how, n_tokens);
    return l;
}

/* The same with a packed ring: all pairs fit, unless that leaves too little for the ring. */
static inline struct chain_layout make_packed(const struct expert_step *x, int n_blocks, int n_tokens,
                                              struct expert_args *args)
{
    const int pairs = n_tokens * x->args.how.n_chosen, pair = 2 * x->args.pair_pitch, room = x->p->max_shared;
    struct chain_layout l = make_layout(x, n_blocks, PACKED_SLOTS, 0, n_tokens, pairs, args);
    int missing = l.bytes + RING_WANTED - room;
    int least = min(n_tokens * x->args.codes.teams, pairs);
    int places = missing <= 0 ? pairs : max(least, pairs - (missing + pair - 1) / pair);
    if (places < pairs)
        l = make_layout(x, n_blocks, PACKED_SLOTS, 0, n_tokens, places, args);
    int ring = min((room - l.bytes) / 1024 * 1024, RING_MOST);
    return make_layout(x, n_blocks, PACKED_SLOTS, ring, n_tokens, places, args);
}

/* Maximum bytes of a slot in the ring. */
static inline int largest_slot(const struct expert_codes *c)
{
    const coded_slot gated(CHAIN_OCTET, CHAIN_OCTET, true, c->pieces[0], c->pitch[0]),
        in_turns(CHAIN_ROWS, 0, false, c->pieces[0], c->pitch[0]),
        second(CHAIN_ROWS, c->tiles > 1 ? CHAIN_ROWS : 0, false, c->pieces[1], c->pitch[1]);
    return max(max(gated.bytes, in_turns.bytes), second.bytes * c->teams);
}

/* The slots of the deepest ring that leaves room for n tokens, and its layout; 0: there is none. */
static inline int find_slots(const struct expert_step *x, int n_blocks, int n_tokens, struct chain_layout *l,
                             struct expert_args *args)
{
    const int pairs = n_tokens * x->args.how.n_chosen;
    if (x->form != FORM_NONE) {
        *l = make_packed(x, n_blocks, n_tokens, args);
        return args->codes.ring >= max(RING_LEAST, largest_slot(&x->args.codes)) ? PACKED_SLOTS : 0;
    }
    for (int slots : {5, 3, 2}) {
        *l = make_layout(x, n_blocks, slots, slots * RING_SLOT_BYTES, n_tokens, pairs, args);
        if (l->bytes <= x->p->max_shared)
            return slots;
    }
    return 0;
}

/* The maximum tokens of a step that fit. */
static inline int find_most(const struct expert_step *x, int n_blocks)
{
    struct expert_args args = x->args;
    struct chain_layout l;
    int n = 0;
    while (n < NARROW_TOKENS && find_slots(x, n_blocks, n + 1, &l, &args) > 0)
        n++;
    return n;
}

#endif
