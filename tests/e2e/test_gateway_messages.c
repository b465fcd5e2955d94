/* tests/e2e/test_gateway_messages.c - Anthropic's API at lockstep-gateway, in front of a fake server. */
#include "tests/support/cases.h"
#include "tests/support/front.h"

#include <string.h>

#define PATH "/v1/messages"

static struct fake_server fake;
static struct web_gateway gate;

static void passes(const char *body, const char *message, const char *part)
{
    front_passes(&fake, &gate, PATH, "anthropic-version: 2023-06-01\r\n", body, message, FRONT_PARTS(part));
}

static void refuses(const char *body, int status, const char *type, const char *part)
{
    front_refuses(&gate, PATH, "", body, status,
                  FRONT_PARTS("{\"type\":\"error\",\"error\":{\"type\":", type, "\"message\":", part));
}

#define USER(content)  "{\"role\":\"user\",\"content\":" content "}"
#define TEXT(text)     "{\"type\":\"text\",\"text\":\"" text "\"}"
#define REQUEST(turns) "{\"max_tokens\":2,\"messages\":[" turns "]"
#define MESSAGE(turns) "{\"max_tokens\":2,\"messages\":[" turns "]}"

static void requests(void)
{
    passes(REQUEST(USER("\"x\"")) "}", MESSAGE(USER("\"x\"")), "\"text\":\"w0 w1\"");
    passes(REQUEST(USER("[" TEXT("a") "," TEXT("b") "]")) ",\"model\":\"fake\",\"metadata\":{\"user_id\":\"u\"},"
                                                          "\"service_tier\":\"auto\"}",
           MESSAGE(USER("[" TEXT("a") "," TEXT("b") "]")), "\"model\":\"fake\"");
    passes(REQUEST(USER(
               "\"x\"")) ",\"system\":\"s\",\"temperature\":0,\"top_p\":0.5,\"top_k\":3,\"stop_sequences\":[\"q\"]}",
           "{\"max_tokens\":2,\"temperature\":0,\"top_p\":0.5,\"top_k\":3,\"stop_sequences\":[\"q\"],\"messages\":["
           "{\"role\":\"system\",\"content\":[" TEXT("s") "]}," USER("\"x\"") "]}",
           "\"stop_reason\":\"max_tokens\"");
    passes(
        REQUEST(USER("\"x\"")) ",\"system\":[" TEXT(
            "x-anthropic-billing-header: cc_version=2") ",{\"type\":\"text\","
                                                        "\"text\":\"s\",\"cache_control\":{\"type\":\"ephemeral\"}}]}",
        MESSAGE("{\"role\":\"system\",\"content\":[" TEXT("s") "]}," USER("\"x\"")), "\"type\":\"message\"");
    passes(
        REQUEST(USER(
            "\"a\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":"
                     "\"s\"}," TEXT("b") ",{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"f\",\"input\":{\"k\":1}}]}"
                                         "," USER("[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"r\"}"
                                                  "," TEXT("d") "]")) ",\"tools\":[{\"name\":\"f\",\"description\":"
                                                                      "\"d\",\"input_schema\":{\"type\":\"object\"}}]}",
        "{\"max_tokens\":2,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\","
        "\"parameters\":{\"type\":\"object\"}}}],\"messages\":[" USER(
            "\"a\"") ",{\"role\":\"assistant\",\"content\":[" TEXT("b") "],\"reasoning_content\":\"t\",\"tool_calls\":["
                                                                        "{\"id\":\"c1\",\"type\":\"function\","
                                                                        "\"function\":"
                                                                        "{\"name\":\"f\",\"arguments\":{\"k\":1}}}]},{"
                                                                        "\"role\":\"tool\",\"content\":[" TEXT(
                                                                            "r") "],\"tool_call_id\":"
                                                                                 "\"c1\"}," USER("[" TEXT(
                                                                                     "d") "]") "],\"tool_choice\":"
                                                                                               "\"auto\"}",
        "\"type\":\"message\"");
    passes(REQUEST(
               USER("\"x\"")) ",\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{"
                              "\"type\":\"object\"}}}}",
           "{\"max_tokens\":2,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"output\","
           "\"schema\":{\"type\":\"object\"}}},\"messages\":[" USER("\"x\"") "]}",
           "\"type\":\"message\"");
    passes(REQUEST(USER("\"x\"")) ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}],\"tool_choice\":{\"type\":\"any\","
                                  "\"disable_parallel_tool_use\":true}}",
           "{\"max_tokens\":2,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}],"
           "\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"messages\":[" USER("\"x\"") "]}",
           "\"type\":\"message\"");
    front_passes(
        &fake, &gate, PATH, "", REQUEST(USER("\"call\"")) "}", MESSAGE(USER("\"call\"")),
        FRONT_PARTS("\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm.\",\"signature\":\"\"},{\"type\":\"text\","
                    "\"text\":\"I look.\",\"citations\":null},{\"type\":\"tool_use\",\"id\":\"call_",
                    "\"name\":\"f\",\"input\":{\"a\":\"b c\"}},{\"type\":\"tool_use\",\"id\":\"call_",
                    "\"name\":\"g\",\"input\":{}}]", "\"stop_reason\":\"tool_use\""));
    passes(REQUEST(USER("\"x\"") ",{\"role\":\"system\",\"content\":[" TEXT("s") "]}," USER("\"y\"")) "}",
           MESSAGE(USER("\"x\"") ",{\"role\":\"system\",\"content\":[" TEXT("s") "]}," USER("\"y\"")),
           "\"type\":\"message\"");
    passes(REQUEST(USER("\"x\"")) ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}",
           "{\"max_tokens\":2,\"chat_template_kwargs\":{\"enable_thinking\":true},\"messages\":[" USER("\"x\"") "]}",
           "\"type\":\"message\"");
    passes(REQUEST(USER("\"x\"") ",{\"role\":\"assistant\",\"content\":\"y\"}") "}",
           "{\"max_tokens\":2,\"continue_final_message\":true,\"messages\":[" USER(
               "\"x\"") ",{\"role\":\"assistant\",\"content\":\"y\"}]}",
           "\"type\":\"message\"");
}

static void refusals(void)
{
    static const char invalid[] = "\"invalid_request_error\",";
    refuses("{\"messages\":[" USER("\"x\"") "]}", 400, invalid, "max_tokens: missing");
    refuses("{\"max_tokens\":1}", 400, invalid, "messages: found nothing, expected a list of turns");
    refuses(REQUEST(USER("7")) "}", 400, invalid, "messages[0].content: found an integer");
    refuses(REQUEST("{\"role\":\"tool\",\"content\":\"x\"}") "}", 400, invalid,
            "messages[0]: found an object, expected a turn whose \\\"role\\\" is");
    refuses(REQUEST("{\"role\":\"system\",\"content\":7}") "}", 400, invalid, "messages[0].content: found an integer");
    refuses(REQUEST(USER("[{\"type\":\"image\",\"source\":{}}]")) "}", 400, invalid,
            "messages[0].content[0]: blocks of type \\\"image\\\" are not implemented here");
    refuses(REQUEST(USER("\"x\"")) ",\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]}", 400,
            invalid, "tools[0]: tools that a server runs");
    refuses(REQUEST(USER("\"x\"")) ",\"output_config\":{\"format\":{\"type\":\"json_schema\"}}}", 400, invalid,
            "output_config.format: found an object, expected the type json_schema with \\\"schema\\\"");
    refuses(REQUEST(USER("\"x\"")) ",\"tool_choice\":{\"type\":\"tool\"}}", 400, invalid,
            "tool_choice: found an object");
    refuses(REQUEST(USER("\"refuse\"")) "}", 400, invalid, "a text that is refused");
    refuses(REQUEST(USER("\"refuse tools[12].function.name\"")) "}", 400, invalid, "\"tools[12].name: refused\"");
    refuses(REQUEST(USER("\"refuse tools[0].function.parameters\"")) "}", 400, invalid,
            "\"tools[0].input_schema: refused\"");
    refuses(REQUEST(USER("\"refuse response_format\"")) "}", 400, invalid, "\"output_config.format: refused\"");
    refuses(REQUEST(USER("\"refuse messages[3].content\"")) "}", 400, invalid, "\"messages: refused\"");
    refuses(REQUEST(USER("\"x\"")) ",\"prompt\":\"x\"}", 400, invalid, "\"prompt: unknown field\"");
    refuses(REQUEST(USER("\"x\"")) ",\"model\":\"other\"}", 404, "\"not_found_error\",", "not served here");
    refuses(REQUEST(USER("\"x\"")) ",\"op\":\"shutdown\"}", 400, invalid, "op: unknown field");
    refuses("{", 400, invalid, "not valid JSON");
}

static void streams(void)
{
    front_passes(
        &fake, &gate, PATH, "", REQUEST(USER("\"x\"")) ",\"stream\":true}",
        "{\"max_tokens\":2,\"stream\":true,\"messages\":[" USER("\"x\"") "]}",
        FRONT_PARTS(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_",
            "\"content\":[],\"container\":null,\"stop_reason\":null,\"stop_sequence\":null,\"stop_details\":null,"
            "\"usage\":{\"input_tokens\":0,",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,"
            "\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\","
            "\"text\":\"w0\"}}\n\n",
            "\"text\":\" w1\"}}\n\n", "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\","
            "\"stop_sequence\":null,\"stop_details\":null},\"usage\":{\"input_tokens\":0,",
            "\"output_tokens\":2,", "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
    front_passes(
        &fake, &gate, PATH, "", REQUEST(USER("\"call\"")) ",\"stream\":true}",
        "{\"max_tokens\":2,\"stream\":true,\"messages\":[" USER("\"call\"") "]}",
        FRONT_PARTS(
            "event: message_start\n", "event: ping\n",
            "\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
            "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"",
            "{\"type\":\"content_block_stop\",\"index\":0}",
            "\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "{\"type\":\"content_block_stop\",\"index\":1}",
            "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"call_", "\"name\":\"f\",\"input\":{}}}\n\n",
            "\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"",
            "{\"type\":\"content_block_stop\",\"index\":2}", "\"index\":3,\"content_block\":{\"type\":\"tool_use\"",
            "\"partial_json\":\"{}\"", "{\"type\":\"content_block_stop\",\"index\":3}",
            "\"delta\":{\"stop_reason\":\"tool_use\",", "event: message_stop\n"));
    struct web_answer a;
    case_begin("a stream that fails ends with an error event");
    web_ask(&gate, "POST", PATH, "", REQUEST(USER("\"part\"")) ",\"stream\":true}", &a);
    front_check(&a, 200,
                "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":"
                "\"shutting down\"}}\n\n");
    case_check(strstr(a.body, "message_stop") == NULL, "%s", a.body);
    web_free(&a);
    case_end();
}

static void endings(void)
{
    struct web_answer a;
    case_begin("the reasons why a message ended");
    web_ask(&gate, "POST", PATH, "", REQUEST(USER("\"stop text\"")) "}", &a);
    front_check(&a, 200, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"q\"");
    web_free(&a);
    web_ask(&gate, "POST", PATH, "", REQUEST(USER("\"stop id\"")) "}", &a);
    front_check(&a, 200, "\"stop_reason\":\"end_turn\",\"stop_sequence\":null");
    web_free(&a);
    case_end();
    case_begin("tokens are counted");
    web_ask(&gate, "POST", PATH "/count_tokens", "",
            "{\"system\":\"s\",\"messages\":[" USER("\"x\"") "],\"model\":\"fake\"}", &a);
    case_check(a.status == 200 && strcmp(a.body, "{\"input_tokens\":2}") == 0, "%d %s", a.status, a.body);
    const json_t *message = front_await(&fake, "tokenize", 0);
    case_check(json_array_size(json_object_get(message, "messages")) == 2, "other messages than expected");
    web_free(&a);
    case_end();
}

#define VERSION "anthropic-version: 2023-06-01\r\n"

static void asks(const char *path, int status, const char *part)
{
    struct web_answer a;
    case_begin("GET %s", path);
    web_ask(&gate, "GET", path, VERSION, "", &a);
    front_check(&a, status, part);
    web_free(&a);
    case_end();
}

static void models(void)
{
    struct web_answer a;
    asks("/v1/models", 200,
         "{\"data\":[{\"type\":\"model\",\"id\":\"fake\",\"display_name\":\"fake\",\"created_at\":\"20");
    asks("/v1/models", 200, "Z\"}],\"has_more\":false,\"first_id\":\"fake\",\"last_id\":\"fake\"}");
    asks("/v1/models/fake", 200, "{\"type\":\"model\",\"id\":\"fake\",");
    asks("/v1/models/other", 404,
         "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"the model \\\"other\\\" is not");
    case_begin("without the header it is OpenAI's form");
    web_ask(&gate, "GET", "/v1/models/fake", "", "", &a);
    front_check(&a, 200, "\"object\":\"model\"");
    web_free(&a);
    case_end();
}

int main(void)
{
    front_begin(&fake, &gate);
    requests();
    refusals();
    streams();
    endings();
    models();
    return front_finish(&fake, &gate);
}
