/* tests/unit/test_reply.c - protocol/reply.c: every reply and event, verbatim. */
#include "tests/unit/unit.h"

#include "base/json.h"
#include "protocol/reply.h"
#include "protocol/reply_parts.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tokenizer *tokenizer;

/* Byte-level: id 0 "a", 1 " b", 2 the first byte of a character, 3 special. */
static const char vocabulary[] =
    "{\"added_tokens\": [{\"id\": 3, \"content\": \"<s>\", \"special\": true, \"normalized\": false, \"lstrip\": "
    "false, "
    "\"rstrip\": false, \"single_word\": false}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
    "\"add_prefix_space\": false, \"use_regex\": false}, \"post_processor\": null, \"decoder\": {\"type\": "
    "\"ByteLevel\"}, "
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"\xc4\xa0"
    "b\": 1, \"\xc3\xa2\": 2, \"<s>\": 3}, \"merges\": []}}";

static int open_tokenizer(void **state)
{
    (void)state;
    struct err e = {0};
    return tokenizer_open_memory(&tokenizer, vocabulary, sizeof vocabulary - 1, "v", &e);
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_close(&tokenizer);
    return 0;
}

static void expect(char *text, const size_t *written, const char *want)
{
    assert_non_null(text);
    size_t bytes = *written;
    assert_int_equal(strlen(text), bytes);
    assert_string_equal(text, want);
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, NULL); /* and it is JSON */
    assert_non_null(root);
    json_decref(root);
    free(text);
}

static const int32_t ids[] = {0, 1};
static const struct sampled sampled[] = {
    {.token = 0, .logprob = -0.1f, .top_id = {0, 2}, .top_logprob = {-0.1f, -INFINITY}},
    {.token = 1, .logprob = -2.5f, .top_id = {3, 1}, .top_logprob = {-0.25f, -2.5f}}};
static const struct reply_usage usage = {5, 3, 2};
static const struct reply_timing timing = {0.12345, 1, 20.5, 21.6235};

static void generate(void **state)
{
    (void)state;
    size_t n = 0;
    const struct reply_choice choice[] = {
        {.index = 0,
         .text = "a b",
         .bytes = 3,
         .token_id = ids,
         .n_tokens = 2,
         .finish = FINISH_STOP,
         .stop_text = "c"},
        {.index = 1, .text = "q\"\n\0\xc3\xa9", .bytes = 6, .finish = FINISH_LENGTH, .has_score = true, .score = -1.5}};
    struct reply r = {.request_id = "x",
                      .model = "m",
                      .n_choices = 2,
                      .choice = choice,
                      .usage = &usage,
                      .timing = &timing,
                      .seed = INT64_MAX};
    expect(reply_generate(&r, &n), &n,
           "{\"status\":\"ok\",\"request_id\":\"x\",\"model\":\"m\",\"choices\":[{\"index\":0,\"text\":\"a "
           "b\",\"token_ids\":"
           "[0,1],\"finish_reason\":\"stop\",\"stop_reason\":\"c\"},{\"index\":1,\"text\":\"q\\\"\\n\\u0000\xc3\xa9\","
           "\"token_ids\":[],"
           "\"finish_reason\":\"length\",\"score\":-1.5}],\"usage\":{\"prompt_tokens\":5,\"cached_tokens\":3,"
           "\"completion_tokens\":2,\"total_tokens\":7},\"timing\":{\"queue_ms\":0.123,\"prefill_ms\":1.0,\"decode_"
           "ms\":20.5,"
           "\"total_ms\":21.624},\"seed\":9223372036854775807}");
    const struct protocol_error none = {0}, late = {.code = 408, .field = "timeout_ms", .message = "5 ms have passed"};
    const struct err wide = {.code = ERR_UNSUPPORTED, .text = "too \"wide\""},
                     full = {.code = ERR_MEMORY, .text = "full"};
    const struct reply_choice failed[] = {{.index = 0, .text = "a", .bytes = 1, .finish = FINISH_ERROR, .error = &wide},
                                          {.index = 1, .text = "", .finish = FINISH_ERROR, .error = &full},
                                          {.index = 2, .text = "", .finish = FINISH_ERROR}};
    r = (struct reply){.n_choices = 3, .choice = failed};
    expect(reply_generate(&r, &n), &n,
           "{\"status\":\"ok\",\"choices\":[{\"index\":0,\"text\":\"a\",\"token_ids\":[],\"finish_reason\":\"error\","
           "\"error\":{\"code\":400,\"message\":\"too \\\"wide\\\"\"}},{\"index\":1,\"text\":\"\",\"token_ids\":[],"
           "\"finish_reason\":\"error\",\"error\":{\"code\":500,\"message\":\"full\"}},{\"index\":2,\"text\":\"\","
           "\"token_ids\":[],\"finish_reason\":\"error\"}],\"seed\":0}");
    r = (struct reply){.n_choices = 0, .error = &none};
    expect(reply_generate(&r, &n), &n, "{\"status\":\"ok\",\"choices\":[],\"seed\":0}");
    r.error = &late;
    r.n_choices = 1;
    r.choice = choice;
    expect(reply_generate(&r, &n), &n,
           "{\"status\":\"error\",\"code\":408,\"error\":{\"field\":\"timeout_ms\",\"message\":\"5 ms have passed\"},"
           "\"choices\":[{\"index\":0,\"text\":\"a "
           "b\",\"token_ids\":[0,1],\"finish_reason\":\"stop\",\"stop_reason\":\"c\"}],\"seed\":0}");
}

/* Drafts are counted under vLLM's names. No position has more accepted drafts than the one before. */
static void drafts(void **state)
{
    (void)state;
    size_t n = 0;
    struct reply_drafts d = {.n_places = 3, .n_steps = 4, .n_tokens = 10, .n_accepted = (const int64_t[]){3, 1, 1}};
    const struct reply r = {.timing = &timing, .drafts = &d, .usage = &usage};
    const char *before = "{\"status\":\"ok\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"cached_tokens\":3,"
                         "\"completion_tokens\":2,\"total_tokens\":7},\"timing\":{\"queue_ms\":0.123,"
                         "\"prefill_ms\":1.0,\"decode_ms\":20.5,\"total_ms\":21.624}";
    char want[1000];
    (void)snprintf(want, sizeof want,
                   "%s,\"metrics\":{\"speculative_decoding\":{\"mean_acceptance_length\":2.25,"
                   "\"draft_acceptance_rate\":0.5,\"acceptance_histogram\":[1,2,0,1],\"num_spec_steps\":4,"
                   "\"num_accepted_draft_tokens\":5,\"num_draft_tokens\":10,\"num_spec_tokens\":3}},\"seed\":0}",
                   before);
    expect(reply_generate(&r, &n), &n, want);
    d = (struct reply_drafts){.n_places = 1, .n_accepted = (const int64_t[]){0}};
    (void)snprintf(want, sizeof want,
                   "%s,\"metrics\":{\"speculative_decoding\":{\"mean_acceptance_length\":null,"
                   "\"draft_acceptance_rate\":null,\"acceptance_histogram\":[0,0],\"num_spec_steps\":0,"
                   "\"num_accepted_draft_tokens\":0,\"num_draft_tokens\":0,\"num_spec_tokens\":1}},\"seed\":0}",
                   before);
    expect(reply_generate(&r, &n), &n, want);
    d = (struct reply_drafts){.n_places = 2, .n_steps = 4, .n_tokens = 8, .n_accepted = (const int64_t[]){3, 2}};
    const struct reply predicted = {.drafts = &d, .usage = &usage, .predicted = true};
    char *text = reply_generate(&predicted, &n);
    assert_non_null(strstr(text, "\"total_tokens\":7,\"completion_tokens_details\":{\"accepted_prediction_tokens\":5,"
                                 "\"rejected_prediction_tokens\":3}}"));
    free(text);
    d = (struct reply_drafts){0}; /* drafts are off */
    text = reply_generate(&predicted, &n);
    assert_non_null(strstr(text, "{\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}"));
    assert_null(strstr(text, "metrics"));
    free(text);
    (void)snprintf(want, sizeof want, "%s,\"seed\":0}", before);
    expect(reply_generate(&r, &n), &n, want);
}

static void logprobs(void **state)
{
    (void)state;
    size_t n = 0;
    static const int32_t prompt[] = {3, 0, 1};
    struct reply_choice choice = {
        .token_id = ids, .n_tokens = 2, .finish = FINISH_NONE, .logprobs = sampled, .n_top = 2};
    struct reply r = {.tokenizer = tokenizer, .n_choices = 1, .choice = &choice};
    expect(reply_generate(&r, &n), &n,
           "{\"status\":\"ok\",\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[0,1],\"logprobs\":{\"content\":["
           "{\"token_id\":0,\"token\":\"a\",\"logprob\":-0.1,\"top_logprobs\":[{\"token_id\":0,\"token\":\"a\","
           "\"logprob\":-0.1},{\"token_id\":2,\"token\":\"\xef\xbf\xbd\",\"bytes\":[226],\"logprob\":-9999.0}]},"
           "{\"token_id\":1,\"token\":\" "
           "b\",\"logprob\":-2.5,\"top_logprobs\":[{\"token_id\":3,\"token\":\"<s>\",\"bytes\":[],\"logprob\":"
           "-0.25},{\"token_id\":1,\"token\":\" b\",\"logprob\":-2.5}]}]},\"finish_reason\":null}],\"seed\":0}");
    choice = (struct reply_choice){.prompt_id = prompt, .n_prompt = 3, .prompt_logprobs = sampled, .n_prompt_top = 0};
    expect(reply_generate(&r, &n), &n,
           "{\"status\":\"ok\",\"choices\":[{\"index\":0,\"text\":\"\",\"token_ids\":[],\"prompt_token_ids\":[3,0,1],"
           "\"prompt_logprobs\":[null,{\"token_id\":0,\"token\":\"a\",\"logprob\":-0.1,\"top_logprobs\":[]},"
           "{\"token_id\":1,\"token\":\" b\",\"logprob\":-2.5,\"top_logprobs\":[]}],"
           "\"prompt_first_token\":\"<s>\",\"prompt_first_is_special\":true,\"finish_reason\":null}],\"seed\":0}");
}

/* The body has each of these parts, and lacks the last one. */
static void expect_body(const struct reply *r, bool chat, const char *const *parts, const char *none)
{
    bool good = true;
    json_t *body = reply_openai_body(r, chat, "cmpl-1", 5, &good);
    char *text = json_text(body, JSON_COMPACT);
    assert_true(good);
    assert_non_null(text);
    for (; *parts != NULL; parts++)
        if (strstr(text, *parts) == NULL)
            fail_msg("%s\nin %s", *parts, text);
    if (none != NULL && strstr(text, none) != NULL)
        fail_msg("%s in %s", none, text);
    free(text);
    json_decref(body);
}

/* A batch's completion: text_offset indexes the text, which has no special token, and the parts of a character. */
static void offsets(void **state)
{
    (void)state;
    static const int32_t prompt[] = {3, 0, 1}, parts[] = {2, 0};
    struct reply_choice choice = {.text = "a b\xef\xbf\xbd"
                                          "a",
                                  .bytes = 7,
                                  .token_id = parts,
                                  .n_tokens = 2,
                                  .finish = FINISH_LENGTH,
                                  .logprobs = sampled,
                                  .prompt_id = prompt,
                                  .n_prompt = 3,
                                  .prompt_logprobs = sampled};
    const struct reply r = {.model = "m",
                            .tokenizer = tokenizer,
                            .n_choices = 1,
                            .choice = &choice,
                            .usage = &usage,
                            .timing = &timing,
                            .echo = true};
    expect_body(&r, false, (const char *[]){"\"text_offset\":[0,0,1,3,4]", NULL}, NULL);
}

/* With echo a prompt's log-probabilities are in the lists of all tokens, or, if there are none, in vLLM's form. */
static void openai_prompts(void **state)
{
    (void)state;
    static const int32_t prompt[] = {3, 0, 1};
    struct reply_choice choice = {.text = "a b",
                                  .bytes = 3,
                                  .token_id = ids,
                                  .n_tokens = 1,
                                  .finish = FINISH_LENGTH,
                                  .logprobs = sampled,
                                  .prompt_id = prompt,
                                  .n_prompt = 3,
                                  .prompt_logprobs = sampled,
                                  .n_prompt_top = 2};
    struct reply r = {.model = "m",
                      .tokenizer = tokenizer,
                      .n_choices = 1,
                      .choice = &choice,
                      .usage = &usage,
                      .timing = &timing,
                      .echo = true,
                      .ids = true};
    static const char scores[] = "\"prompt_logprobs\":[null,{\"0\":{\"logprob\":-0.1,\"rank\":1,\"decoded_token\":"
                                 "\"a\"},\"2\":{\"logprob\":-9999.0,\"rank\":2,\"decoded_token\":\"\xef\xbf\xbd\"}},"
                                 "{\"1\":{\"logprob\":-2.5,\"rank\":2,\"decoded_token\":\" b\"},\"3\":{\"logprob\":"
                                 "-0.25,\"rank\":1,\"decoded_token\":\"<s>\"}}]";
    static const char listed[] = "\"top_logprobs\":[null,{\"a\":-0.1,\"\xef\xbf\xbd\":-9999.0},{\" b\":-2.5,\"<s>\":"
                                 "-0.25},{\"a\":-0.1}]";
    static const char of_prompt[] = "\"prompt_token_ids\":[3,0,1]", of_text[] = "\"token_ids\":[0]";
    expect_body(&r, false, (const char *[]){listed, of_prompt, of_text, NULL}, "prompt_logprobs");
    choice.logprobs = NULL;
    expect_body(&r, false, (const char *[]){scores, of_prompt, of_text, NULL}, "top_logprobs");
    r.echo = false;
    expect_body(&r, true, (const char *[]){scores, of_prompt, of_text, NULL}, "top_logprobs");
    choice.n_prompt_top = 0;
    r.ids = false;
    expect_body(&r, true, (const char *[]){"{\"1\":{\"logprob\":-2.5,\"rank\":null,", NULL}, "token_ids");
    r.ids = true;
    choice.prompt_logprobs = NULL;
    expect_body(&r, false, (const char *[]){of_prompt, of_text, NULL}, "prompt_logprobs");
}

/* A prompt serialised in advance appears in the event as if serialised with it, whatever the prompt and the names
 * contain. */
static void events_after_a_prompt(void **state)
{
    (void)state;
    static const char prompt[] = "\"text\":\"\\ a\n\x01\xf0\x9f\x90\xb8\xff", name[] = "\"text\":\"";
    char both[100];
    size_t n = 0, n_whole = 0;
    struct reply_choice choice = {.text = "b\"", .bytes = 2, .token_id = ids, .n_tokens = 1};
    const struct reply r = {.request_id = name, .tokenizer = tokenizer, .n_choices = 1, .choice = &choice};
    char *before = reply_characters(prompt, sizeof prompt - 1, &choice.n_before);
    choice.before = before;
    char *event = reply_tokens(&r, 5, &n);
    (void)snprintf(both, sizeof both, "%sb\"", prompt);
    choice = (struct reply_choice){.text = both, .bytes = strlen(both), .token_id = ids, .n_tokens = 1};
    char *whole = reply_tokens(&r, 5, &n_whole);
    assert_string_equal(event, whole);
    assert_int_equal(n, n_whole);
    assert_int_equal(strlen(event), n);
    free(before);
    free(event);
    free(whole);
}

static void events(void **state)
{
    (void)state;
    size_t n = 0;
    const struct reply_choice choice = {.index = 3,
                                        .text = "a",
                                        .bytes = 1,
                                        .token_id = ids,
                                        .n_tokens = 1,
                                        .logprobs = sampled,
                                        .n_top = 0,
                                        .finish = FINISH_CANCELLED};
    const struct protocol_error error = {.code = 499, .message = "cancelled"};
    struct reply r = {.request_id = "x",
                      .model = "m",
                      .tokenizer = tokenizer,
                      .n_choices = 1,
                      .choice = &choice,
                      .usage = &usage,
                      .seed = 4};
    expect(reply_tokens(&r, 0, &n), &n,
           "{\"status\":\"ok\",\"request_id\":\"x\",\"event\":\"tokens\",\"seq\":0,\"choices\":[{\"index\":3,\"text\":"
           "\"a\","
           "\"token_ids\":[0],\"logprobs\":{\"content\":[{\"token_id\":0,\"token\":\"a\",\"logprob\":-0.1,"
           "\"top_logprobs\":[]}]},\"finish_reason\":\"cancelled\"}]}");
    r.error = &error;
    expect(
        reply_final(&r, 7, &n), &n,
        "{\"status\":\"error\",\"request_id\":\"x\",\"code\":499,\"error\":{\"field\":\"\",\"message\":\"cancelled\"},"
        "\"event\":\"final\",\"seq\":7,\"model\":\"m\",\"choices\":[{\"index\":3,\"finish_reason\":\"cancelled\"}],"
        "\"usage\":{\"prompt_tokens\":5,\"cached_tokens\":3,\"completion_tokens\":2,\"total_tokens\":7},\"seed\":4}");
}

static void operations(void **state)
{
    (void)state;
    size_t n = 0;
    const struct protocol_error busy = {429, "", "64 requests wait", 250};
    expect(reply_error(NULL, &busy, &n), &n,
           "{\"status\":\"error\",\"code\":429,\"error\":{\"field\":\"\",\"message\":\"64 requests wait\"},"
           "\"retry_after_ms\":250}");
    expect(reply_cancel("x", &n), &n, "{\"status\":\"ok\",\"request_id\":\"x\",\"op\":\"cancel\"}");
    const struct reply_health h = {"ready", "m", 4, 2, 3, 4, 0.25, 1.5};
    expect(
        reply_health("x", &h, &n), &n,
        "{\"status\":\"ok\",\"request_id\":\"x\",\"op\":\"health\",\"protocol\":1,\"state\":\"ready\",\"model\":\"m\","
        "\"ranks\":4,\"groups\":2,\"running\":3,\"waiting\":4,\"kv_usage\":0.25,\"uptime_s\":1.5}");
    expect(reply_metrics(NULL, "a 1\n", 4, &n), &n,
           "{\"status\":\"ok\",\"op\":\"metrics\",\"content_type\":\"text/plain; version=0.0.4\",\"text\":\"a 1\\n\"}");
    struct reply_model m = {"m", "llama", "bf16", 2, 1, 100, 64, NULL, "ready", .bytes = -1};
    expect(reply_models(NULL, &m, 1, 1 << 24, &n), &n,
           "{\"status\":\"ok\",\"op\":\"models\",\"protocol\":1,\"max_message_bytes\":16777216,\"on_behalf_of\":true,"
           "\"models\":[{\"id\":\"m\","
           "\"family\":\"llama\",\"dtype\":\"bf16\",\"ranks\":2,\"groups\":1,\"vocab_size\":100,\"max_model_len\":64,"
           "\"chat_template\":"
           "null,\"state\":\"ready\"}]}");
    m.variant = "kv-fp8";
    expect(reply_model(NULL, PROTOCOL_LOAD, &m, &n), &n,
           "{\"status\":\"ok\",\"op\":\"load\",\"model\":{\"id\":\"m\",\"family\":\"llama\",\"dtype\":\"bf16\","
           "\"variant\":"
           "\"kv-fp8\",\"ranks\":2,\"groups\":1,\"vocab_size\":100,\"max_model_len\":64,\"chat_template\":null,"
           "\"state\":\"ready\"}}");
    const struct reply_model many[2] = {
        {"a", "gpt2", "f32", 1, 1, 9, 8, "default", "ready", true, 2, 2, 1, 4096, true, 900, 50, 0.5, NULL, NULL},
        {"b", .ranks = 1, .n_replicas = 1, .state = "failed", .idle_s = -1, .why = "no config.json"}};
    expect(reply_models(NULL, many, 2, 1024, &n), &n,
           "{\"status\":\"ok\",\"op\":\"models\",\"protocol\":1,\"max_message_bytes\":1024,\"on_behalf_of\":true,"
           "\"models\":[{\"id\":\"a\","
           "\"family\":\"gpt2\",\"dtype\":\"f32\",\"ranks\":1,\"groups\":1,\"vocab_size\":9,\"max_model_len\":8,"
           "\"chat_template\":\"default\",\"state\":\"ready\",\"bytes\":4096,\"pinned\":true,\"replicas\":2,"
           "\"running\":2,\"waiting\":1,"
           "\"idle_s\":0.5,\"freed_bytes\":50,\"free_before_bytes\":900,\"free_after_bytes\":950},{\"id\":\"b\","
           "\"ranks\":1,\"groups\":1,\"state\":\"failed\",\"bytes\":0,"
           "\"pinned\":false,\"replicas\":0,\"running\":0,\"waiting\":0,\"idle_s\":null,\"freed_bytes\":null,"
           "\"reason\":\"no "
           "config.json\"}]}");
    expect(
        reply_model("x", PROTOCOL_PIN, &many[1], &n), &n,
        "{\"status\":\"ok\",\"request_id\":\"x\",\"op\":\"pin\",\"model\":{\"id\":\"b\",\"ranks\":1,\"groups\":1,"
        "\"state\":\"failed\",\"bytes\":0,\"pinned\":false,\"replicas\":0,\"running\":0,\"waiting\":0,\"idle_s\":null,"
        "\"freed_bytes\":null,\"reason\":\"no config.json\"}}");
    expect(
        reply_tokenize(NULL, (const int32_t[]){3, 1, 99}, 3, tokenizer, true, 64, &n), &n,
        "{\"status\":\"ok\",\"op\":\"tokenize\",\"count\":3,\"max_model_len\":64,\"token_ids\":[3,1,99],\"token_strs\":"
        "[\"<s>\",\"\xc4\xa0"
        "b\",null]}");
    expect(reply_tokenize(NULL, ids, 0, tokenizer, false, 64, &n), &n,
           "{\"status\":\"ok\",\"op\":\"tokenize\",\"count\":0,\"max_model_len\":64,\"token_ids\":[]}");
    expect(reply_state("x", PROTOCOL_DRAIN, "draining", &n), &n,
           "{\"status\":\"ok\",\"request_id\":\"x\",\"op\":\"drain\",\"state\":\"draining\"}");
}

/* Any bytes are output as UTF-8. */
static void repairs_text(void **state)
{
    (void)state;
    size_t n = 0;
    expect(reply_detokenize(NULL,
                            "a\xff"
                            "b\xe2\x82",
                            5, &n),
           &n,
           "{\"status\":\"ok\",\"op\":\"detokenize\",\"text\":\"a\xef\xbf\xbd"
           "b\xef\xbf\xbd\xef\xbf\xbd\"}");
    const struct protocol_error error = {400, "\xc3", "\x80", 0};
    expect(reply_error("\xff", &error, &n), &n,
           "{\"status\":\"error\",\"request_id\":\"\xef\xbf\xbd\",\"code\":400,\"error\":{\"field\":\"\xef\xbf\xbd\","
           "\"message\":\"\xef\xbf\xbd\"}}");
    uint64_t seed = 5;
    for (int trial = 0; trial < 2000; trial++) {
        char bytes[12];
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)(random_below(&seed, 3) == 0 ? random_below(&seed, 256)
                                                          : "\xe2\x82\xac\xc3\xf0\x9f"[random_below(&seed, 6)]);
        char *text = reply_detokenize(NULL, bytes, sizeof bytes, &n);
        assert_non_null(text);
        json_t *root = json_loadb(text, n, JSON_ALLOW_NUL, NULL); /* refuses what is not UTF-8 */
        assert_non_null(root);
        json_decref(root);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate),
        cmocka_unit_test(drafts),
        cmocka_unit_test(logprobs),
        cmocka_unit_test(offsets),
        cmocka_unit_test(openai_prompts),
        cmocka_unit_test(events),
        cmocka_unit_test(events_after_a_prompt),
        cmocka_unit_test(operations),
        cmocka_unit_test(repairs_text),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
