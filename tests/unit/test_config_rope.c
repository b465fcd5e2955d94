/* tests/unit/test_config_rope.c - frequencies of every rope scaling against the formulas of models.md 1.4, computed in
 * double by a separate Python script for named models, and here for the simple ones. */
#include "tests/unit/checkpoint_folder.h"

#include "partition/model.h"

#include <math.h>

static struct model_config m, other;

static void parse(struct model_config *to, const char *text)
{
    struct err e = {0};
    if (model_config_parse(to, text, strlen(text), "config.json", &e) != 0)
        fail_msg("%s: %s", text, e.text);
}

/* Compares float arithmetic on numbers below 1: within a few units in the last place. */
static void near(float got, double want)
{
    if (!(fabs(got - want) <= 2e-6 * fabs(want)))
        fail_msg("got %.9g, expected %.9g", (double)got, want);
}

struct point {
    int j;
    double inv_freq;
};

static void expect_points(const struct point *point, size_t n)
{
    for (size_t i = 0; i < n; i++)
        near(m.rope.inv_freq[point[i].j], point[i].inv_freq);
}
#define EXPECT_POINTS(...)                             \
    expect_points((const struct point[]){__VA_ARGS__}, \
                  sizeof((const struct point[]){__VA_ARGS__}) / sizeof(struct point))

static void plain(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"rope_theta\":500000.0}");
    assert_int_equal(m.rope.layout, ROPE_HALF);
    assert_int_equal(m.rope.growth, ROPE_FIXED);
    assert_int_equal(m.rope.dims, 128);
    assert_true(m.rope.attention_scaling == 1.0f);
    for (int j = 0; j < 64; j++)
        near(m.rope.inv_freq[j], pow(500000, -2.0 * j / 128));
    assert_true(m.rope.inv_freq[64] == 0.0f);
    parse(&m, "{\"model_type\":\"gptj\"}");
    for (int j = 0; j < 32; j++)
        near(m.rope.inv_freq[j], pow(10000, -2.0 * j / 64));
    parse(&m, "{\"model_type\":\"gpt_neox\",\"hidden_size\":320,\"num_attention_heads\":4,\"rotary_pct\":0.4}");
    assert_int_equal(m.rope.dims, 32); /* int(80 * 0.4) */
    for (int j = 0; j < 16; j++)
        near(m.rope.inv_freq[j], pow(10000, -2.0 * j / 32));
}

static void linear(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}");
    for (int j = 0; j < 64; j++)
        near(m.rope.inv_freq[j], pow(10000, -2.0 * j / 128) / 4);
    assert_int_equal(m.rope.growth, ROPE_FIXED);
    assert_true(m.rope.attention_scaling == 1.0f);
}

static void dynamic(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"rope_theta\":20000,"
              "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.5}}");
    assert_int_equal(m.rope.growth, ROPE_DYNAMIC);
    assert_int_equal(m.rope.long_from, 4096);
    assert_true(m.rope.theta == 20000.0f && m.rope.factor == 2.5f && m.rope.attention_scaling == 1.0f);
    for (int j = 0; j < 64; j++)
        near(m.rope.inv_freq[j], pow(20000, -2.0 * j / 128));
}

/* Llama-3.1-8B. */
static void llama3(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"max_position_embeddings\":131072,"
              "\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}}");
    EXPECT_POINTS({0, 1}, {1, 0.814617234}, {20, 0.0165604401}, {28, 0.00321144599}, {29, 0.00216657076},
                  {30, 0.00137189357}, {32, 0.000524846161}, {34, 0.000178507813}, {35, 9.55621235e-05},
                  {36, 7.78465527e-05}, {50, 4.41153467e-06}, {63, 3.06892599e-07});
    assert_true(m.rope.attention_scaling == 1.0f);
    assert_int_equal(m.rope.growth, ROPE_FIXED);
}

/* Qwen2.5-7B-Instruct with the scaling recommended on its model card; then gpt-oss's parameters without truncation. */
static void yarn(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
              "\"rope_theta\":1000000.0,\"max_position_embeddings\":32768,\"rope_scaling\":{\"factor\":4.0,"
              "\"original_max_position_embeddings\":32768,\"type\":\"yarn\"}}");
    EXPECT_POINTS({0, 1}, {22, 0.00865964323}, {23, 0.00697830585}, {24, 0.00537532149}, {30, 0.00106436098},
                  {39, 6.49039432e-05}, {40, 4.44569853e-05}, {63, 3.1023444e-07});
    near(m.rope.attention_scaling, 0.1 * log(4) + 1);
    parse(&other, "{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
                  "\"rope_theta\":1000000.0,\"max_position_embeddings\":32768,\"rope_scaling\":{\"factor\":4.0,"
                  "\"rope_type\":\"yarn\",\"beta_fast\":32,\"beta_slow\":1,\"mscale\":0}}");
    assert_memory_equal(&m, &other, sizeof m); /* the original context defaults to the config's */
    parse(&m,
          "{\"model_type\":\"llama\",\"head_dim\":64,\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\","
          "\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,\"truncate\":false,"
          "\"original_max_position_embeddings\":4096}}");
    EXPECT_POINTS({0, 1}, {8, 0.0508132748}, {9, 0.0317056962}, {12, 0.00679495949}, {17, 0.000129318701},
                  {18, 3.83088124e-05}, {31, 3.02351143e-07});
}

/* A small base stretches the ramp beyond the ends of the dimensions, where it is cut. */
static void yarn_ends(void **state)
{
    static const struct {
        int original, j;
        double inv_freq;
    } table[] = {{1130, 7, 0.113349322}, {20, 1, 0.637410078}, {20, 7, 0.0333380358}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[300];
        (void)snprintf(text, sizeof text,
                       "{\"model_type\":\"llama\",\"head_dim\":16,\"rope_theta\":10,\"rope_scaling\":{\"rope_type\":"
                       "\"yarn\",\"factor\":4,\"original_max_position_embeddings\":%d}}",
                       table[i].original);
        parse(&m, text);
        near(m.rope.inv_freq[table[i].j], table[i].inv_freq);
    }
}

static void yarn_attention(void **state)
{
    static const struct {
        const char *more;
        double want;
    } table[] = {
        {"", 1 + 0.1 * 3.6888794541139363}, /* ln 40 */
        {",\"attention_factor\":1.25", 1.25},
        {",\"mscale\":1.0,\"mscale_all_dim\":1.0", 1},
        {",\"mscale\":0.707,\"mscale_all_dim\":1.0",
         (1 + 0.0707 * 3.6888794541139363) / (1 + 0.1 * 3.6888794541139363)},
        {",\"mscale\":0.707", 1 + 0.1 * 3.6888794541139363}, /* both or neither */
        {",\"mscale\":0.707,\"mscale_all_dim\":1.0,\"attention_factor\":0.5", 0.5},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        char text[300];
        (void)snprintf(text, sizeof text,
                       "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":40%s}}",
                       table[i].more);
        parse(&m, text);
        near(m.rope.attention_scaling, table[i].want);
    }
    parse(&m, "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":1}}");
    assert_true(m.rope.attention_scaling == 1.0f);
}

#define LONG "\"short_factor\":[1.0,1.5,2.0],\"long_factor\":[1.0,4,32.5]"

static void longrope(void **state)
{
    static const double short_factor[] = {1, 1.5, 2}, long_factor[] = {1, 4, 32.5};
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":131072,"
              "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"longrope\"," LONG "}}");
    assert_int_equal(m.rope.growth, ROPE_LONG);
    assert_int_equal(m.rope.long_from, 4096);
    for (int j = 0; j < 3; j++) {
        near(m.rope.inv_freq[j], 1 / (short_factor[j] * pow(10000, 2.0 * j / 6)));
        near(m.rope.inv_freq_long[j], 1 / (long_factor[j] * pow(10000, 2.0 * j / 6)));
    }
    near(m.rope.attention_scaling, sqrt(1 + log(32) / log(4096)));
    parse(&other,
          "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":131072,\"rope_parameters\":{"
          "\"rope_type\":\"longrope\",\"rope_theta\":10000.0,\"original_max_position_embeddings\":4096," LONG "}}");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&other, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":131072,"
                  "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"su\"," LONG "}}");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&m, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":4096,"
              "\"original_max_position_embeddings\":4096,\"rope_scaling\":{\"type\":\"longrope\"," LONG "}}");
    assert_true(m.rope.attention_scaling == 1.0f);
    parse(&m, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":"
              "\"longrope\",\"factor\":8," LONG "}}");
    assert_int_equal(m.rope.long_from, 1024);
    near(m.rope.attention_scaling, sqrt(1 + log(8) / log(1024)));
    parse(&m, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":1024,\"rope_scaling\":{\"type\":"
              "\"longrope\",\"factor\":8,\"attention_factor\":1.19," LONG "}}");
    near(m.rope.attention_scaling, 1.19);
    parse(&m, "{\"model_type\":\"llama\",\"head_dim\":6,\"max_position_embeddings\":131072,\"rope_scaling\":{\"type\":"
              "\"longrope\",\"factor\":8,\"original_max_position_embeddings\":4096," LONG "}}");
    near(m.rope.attention_scaling, sqrt(1 + log(8) / log(4096))); /* not 32, the ratio of the two contexts */
}

/* The original context beside the dictionary counts before the one inside. */
static void original_beside(void **state)
{
    static const char *const scaling[] = {
        "\"rope_type\":\"yarn\",\"factor\":4",
        "\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4",
        "\"rope_type\":\"longrope\",\"short_factor\":[1,2],\"long_factor\":[3,4]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof scaling / sizeof scaling[0]; i++) {
        char inside[400], beside[400];
        (void)snprintf(inside, sizeof inside,
                       "{\"model_type\":\"llama\",\"head_dim\":4,\"max_position_embeddings\":8192,\"rope_scaling\":{"
                       "\"original_max_position_embeddings\":512,%s}}",
                       scaling[i]);
        (void)snprintf(beside, sizeof beside,
                       "{\"model_type\":\"llama\",\"head_dim\":4,\"max_position_embeddings\":8192,"
                       "\"original_max_position_embeddings\":512,\"rope_scaling\":{"
                       "\"original_max_position_embeddings\":64,%s}}",
                       scaling[i]);
        parse(&m, inside);
        parse(&other, beside);
        assert_memory_equal(&m, &other, sizeof m);
    }
}

#define LINEAR "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}"

/* As in transformers 5, "rope_scaling" takes the place of "rope_parameters", unless it is empty. */
static void both_versions(void **state)
{
    (void)state;
    parse(&m, "{\"model_type\":\"llama\",\"rope_theta\":500000.0," LINEAR "}");
    parse(&other,
          "{\"model_type\":\"llama\",\"rope_theta\":500000.0," LINEAR ",\"rope_parameters\":{\"rope_theta\":20000,"
          "\"rope_type\":\"default\"}}");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&m, "{\"model_type\":\"llama\",\"rope_theta\":500000.0}");
    parse(&other, "{\"model_type\":\"llama\",\"rope_scaling\":{},\"rope_parameters\":{\"rope_theta\":500000.0}}");
    assert_memory_equal(&m, &other, sizeof m);
    parse(&m, "{\"model_type\":\"ministral3\"," LINEAR "}");
    assert_true(m.rope.query_growth == 0.0f);
    near(m.rope.inv_freq[0], 0.25);
    parse(&m, "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":null}}");
    parse(&other,
          "{\"model_type\":\"llama\",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"truncate\":false}}");
    assert_memory_equal(&m, &other, sizeof m); /* null is no default */
}

/* transformers 5's dictionary and transformers 4's keys give the same model, for every scaling. */
static void versions_agree(void **state)
{
    static const char *const scaling[] = {
        "\"type\":\"default\"",
        "\"type\":\"linear\",\"factor\":2",
        "\"type\":\"dynamic\",\"factor\":2.0",
        ("\"rope_type\":\"llama3\",\"factor\":32,\"low_freq_factor\":1,\"high_freq_factor\":4,"
         "\"original_max_position_embeddings\":8192"),
        "\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":1024",
    };
    (void)state;
    for (size_t i = 0; i < sizeof scaling / sizeof scaling[0]; i++) {
        char v4[400], v5[400];
        (void)snprintf(v4, sizeof v4, "{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"rope_scaling\":{%s}}",
                       scaling[i]);
        (void)snprintf(v5, sizeof v5, "{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":500000.0,%s}}",
                       scaling[i]);
        parse(&m, v4);
        parse(&other, v5);
        assert_memory_equal(&m, &other, sizeof m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),           cmocka_unit_test(linear),        cmocka_unit_test(dynamic),
        cmocka_unit_test(llama3),          cmocka_unit_test(yarn),          cmocka_unit_test(yarn_attention),
        cmocka_unit_test(yarn_ends),       cmocka_unit_test(longrope),      cmocka_unit_test(versions_agree),
        cmocka_unit_test(original_beside), cmocka_unit_test(both_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
