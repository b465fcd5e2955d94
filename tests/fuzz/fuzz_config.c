/* tests/fuzz/fuzz_config.c - libFuzzer target for config.json. An accepted config must be usable: sizes in range, and a
 * consistent weight map on any number of ranks. */
#include "partition/weights.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static struct model_config m;

static void check_config(void)
{
    must(m.n_layers >= 1 && m.n_layers <= MODEL_MAX_LAYERS && m.hidden >= 1 && m.n_heads >= 1 && m.n_kv_heads >= 1);
    must(m.n_heads % m.n_kv_heads == 0 && m.head_dim >= 1 && m.ffn >= 1 && m.vocab >= 1 && m.embed_dim >= 1);
    must(m.norm_eps >= 0 && m.norm_eps <= 1 && isfinite(m.attention_scale) && m.attention_scale > 0);
    for (int i = 0; i < m.n_layers; i++)
        must(m.layer[i].window >= 0);
    if (m.position != POSITION_ROPE)
        return;
    must(m.rope.dims >= 2 && m.rope.dims % 2 == 0 && m.rope.dims <= 2 * ROPE_MAX_PAIRS && m.rope.dims <= m.head_dim);
    must(isfinite(m.rope.attention_scaling) && m.rope.attention_scaling > 0);
    for (int j = 0; j < m.rope.dims / 2; j++) {
        must(isfinite(m.rope.inv_freq[j]) && m.rope.inv_freq[j] >= 0);
        must(m.rope.growth != ROPE_LONG || isfinite(m.rope.inv_freq_long[j]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    int rc = model_config_parse(&m, (const char *)data, size, "fuzz.json", &e);
    must((rc == 0) == (e.code == ERR_NONE));
    must(rc == 0 || strstr(e.text, "fuzz.json") != NULL);
    if (rc != 0)
        return 0;
    check_config();
    int n_ranks = 1 + (int)(size % 9);
    for (int rank = 0; rank < n_ranks; rank++) {
        struct shard s;
        struct weight_map map;
        shard_make(&s, &m, rank, n_ranks);
        must(weight_map_build(&map, &m, &s, NULL, &e) == 0);
        for (int i = 0; i < map.n_slots; i++)
            must(map.slot[i].rows >= 0 && map.slot[i].cols >= 0);
        weight_map_free(&map);
    }
    return 0;
}
