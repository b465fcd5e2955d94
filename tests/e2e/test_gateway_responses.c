/* tests/e2e/test_gateway_responses.c - /v1/responses at lockstep-gateway, in front of a fake server. */
#include "tests/support/cases.h"
#include "tests/support/front.h"

#include <string.h>

#define PATH "/v1/responses"

static struct fake_server fake;
static struct web_gateway gate;

static void passes(const char *body, const char *message, const char *part)
{
    front_passes(&fake, &gate, PATH, "", body, message, FRONT_PARTS("\"object\":\"response\"", part));
}

static void refuses(const char *body, int status, const char *part)
{
    front_refuses(&gate, PATH, "", body, status, FRONT_PARTS("{\"error\":{\"message\":", part));
}

#define USER(text)       "{\"role\":\"user\",\"content\":\"" text "\"}"
#define SAID(role, text) "{\"role\":\"" role "\",\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}]}"

static void requests(void)
{
    passes(
        "{\"input\":\"x\",\"max_output_tokens\":2}", "{\"max_tokens\":2,\"messages\":[" USER("x") "]}",
        "\"status\":\"incomplete\",\"error\":null,\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"model\":"
        "\"fake\",\"output\":[{\"type\":\"message\",\"id\":\"msg_");
    passes("{\"input\":\"stop "
           "id\",\"instructions\":\"i\",\"max_output_tokens\":2,\"temperature\":0,\"metadata\":{\"a\":\"b\"}}",
           "{\"max_tokens\":2,\"temperature\":0,\"messages\":[{\"role\":\"system\",\"content\":\"i\"}," USER(
               "stop id") "]}",
           "\"status\":\"completed\"");
    passes(
        "{\"input\":[{\"role\":\"developer\",\"content\":\"d\"},{\"type\":\"message\",\"role\":\"user\",\"content\":[{"
        "\"type\":\"input_text\",\"text\":\"a\"}]},{\"type\":\"reasoning\",\"summary\":[]},{\"type\":\"message\","
        "\"role\":"
        "\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"b\",\"annotations\":[]}]},{\"type\":"
        "\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\","
        "\"call_id\":\"c\",\"output\":\"r\"}],\"max_output_tokens\":1,\"tools\":[{\"type\":\"function\",\"name\":\"f\","
        "\"parameters\":{\"type\":\"object\"},\"strict\":true},{\"type\":\"web_search\"}]}",
        "{\"max_tokens\":1,\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
        "\"object\"}}}],\"messages\":[" SAID("system", "d") "," SAID(
            "user", "a") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}],\"tool_calls\":[{"
                         "\"id\":\"c\",\"type\":"
                         "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\","
                         "\"content\":[{\"type\":"
                         "\"text\",\"text\":\"r\"}],\"tool_call_id\":\"c\"}],\"tool_choice\":\"auto\"}",
        "\"tools\":[{\"type\":\"function\",\"name\":\"f\"");
    /* A request as Codex sends it. */
    passes(
        "{\"model\":\"fake\",\"instructions\":\"i\",\"input\":[],\"tools\":[{\"type\":\"custom\",\"name\":\"x\"}],"
        "\"tool_choice\":\"auto\",\"parallel_tool_calls\":true,\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"},"
        "\"store\":false,\"stream\":false,\"include\":[\"reasoning.encrypted_content\"],\"prompt_cache_key\":\"k\","
        "\"client_metadata\":{}}",
        "{\"stream\":false,\"messages\":[{\"role\":\"system\",\"content\":\"i\"}],\"chat_template_kwargs\":{"
        "\"reasoning_effort\":\"low\"}}",
        "\"reasoning\":{\"effort\":\"low\",\"summary\":\"auto\"}");
    passes(
        "{\"input\":\"x\",\"max_output_tokens\":1,\"top_logprobs\":2,\"text\":{\"format\":{\"type\":\"json_schema\","
        "\"name\":"
        "\"n\",\"schema\":{},\"strict\":true}}}",
        "{\"max_tokens\":1,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{},"
        "\"strict\":true}},\"logprobs\":true,\"top_logprobs\":2,\"messages\":[" USER("x") "]}",
        "\"top_logprobs\":2");
}

static void calls(void)
{
    front_passes(
        &fake, &gate, PATH, "", "{\"input\":\"call\"}", "{\"messages\":[" USER("call") "]}",
        FRONT_PARTS("\"status\":\"completed\"", "\"output\":[{\"type\":\"reasoning\",\"id\":\"rs_",
                    "\"content\":[{\"type\":\"reasoning_text\",\"text\":\"Hm.\"}]},{\"type\":\"message\",\"id\":\"msg_",
                    "\"text\":\"I look.\"", "{\"type\":\"function_call\",\"id\":\"fc_",
                    "\"status\":\"completed\",\"call_id\":\"call_",
                    "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"b c\\\"}\"}",
                    "\"name\":\"g\",\"arguments\":\"{}\"}]"));
    front_passes(
        &fake, &gate, PATH, "", "{\"input\":\"call\",\"stream\":true}",
        "{\"stream\":true,\"messages\":[" USER("call") "]}",
        FRONT_PARTS(
            "event: response.in_progress\n", "event: response.output_item.added\n",
            "\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"rs_",
            "event: response.reasoning_text.delta\n", "event: response.reasoning_text.done\n", "\"text\":\"Hm.\"",
            "event: response.output_item.done\n", "\"output_index\":1,\"item\":{\"type\":\"message\"",
            "event: response.output_text.delta\n", "\"text\":\"I look.\"", "event: response.output_item.done\n",
            "\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"fc_", "\"status\":\"in_progress\"",
            "\"name\":\"f\",\"arguments\":\"\"}}\n\n", "event: response.function_call_arguments.delta\n",
            "event: response.function_call_arguments.done\n",
            "\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"b c\\\"}\"}\n\n", "event: response.output_item.done\n",
            "\"output_index\":3,\"item\":{\"type\":\"function_call\"", "event: response.completed\n",
            "\"output\":[{\"type\":\"reasoning\"", "\"name\":\"g\",\"arguments\":\"{}\"}]"));
}

static void refusals(void)
{
    refuses("{\"input\":\"x\",\"previous_response_id\":\"r\"}", 400,
            "\"param\":\"previous_response_id\",\"code\":\"previous_response_not_found\"");
    refuses("{\"input\":\"x\",\"background\":true}", 400, "\"param\":\"background\"");
    refuses("{\"input\":\"x\",\"truncation\":\"auto\"}", 400, "\"param\":\"truncation\"");
    refuses("{\"input\":\"x\",\"include\":[\"file_search_call.results\"]}", 400, "\"param\":\"include\"");
    refuses("{\"input\":\"x\",\"n\":2}", 400, "\"param\":\"n\"");
    refuses("{\"input\":\"x\",\"max_tokens\":2,\"max_output_tokens\":3}", 400, "unknown field");
    refuses("{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"u\"}]}]}", 400,
            "\"param\":\"input[0][0]\"");
    refuses("{\"input\":[{\"type\":\"local_shell_call\"}]}", 400, "items of type \\\"local_shell_call\\\"");
    refuses("{\"input\":[7]}", 400, "input[0]: found an integer");
    refuses("{}", 400, "input: found nothing, expected a string or a list of items");
    refuses("{\"input\":\"refuse\"}", 400, "a text that is refused");
    refuses("{\"input\":\"refuse messages[1].content\"}", 400,
            "\"input: refused\",\"type\":\"invalid_request_error\",\"param\":\"input\",");
    refuses("{\"input\":\"refuse response_format\"}", 400, "\"text.format: refused\",");
    refuses("{\"input\":\"refuse response_format.json_schema.schema\"}", 400, "\"text.format.schema: refused\",");
    refuses("{\"input\":\"x\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\"}}}", 400,
            "\"text.format.schema: found nothing, expected an object\",");
    refuses("{\"input\":\"refuse max_tokens\"}", 400, "\"max_output_tokens: refused\",");
    refuses("{\"input\":\"refuse tools[0].function.name\"}", 400, "\"tools: refused\",");
    refuses("{\"input\":\"refuse max_tokens_x\"}", 400, "\"max_tokens_x: refused\",");
    refuses("{\"input\":\"x\",\"prompt\":{\"id\":\"p\"}}", 400, "\"prompt: not implemented\",");
    refuses("{\"input\":\"x\",\"model\":\"other\"}", 404, "\"code\":\"model_not_found\"");
}

static void streams(void)
{
    front_passes(
        &fake, &gate, PATH, "", "{\"input\":\"x\",\"max_output_tokens\":2,\"stream\":true}",
        "{\"max_tokens\":2,\"stream\":true,\"messages\":[" USER("x") "]}",
        FRONT_PARTS(
            "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":"
            "\"resp_",
            "\"status\":\"in_progress\"", "event: response.in_progress\n",
            "data: {\"type\":\"response.output_item.added\",\"sequence_number\":2,\"output_index\":0,\"item\":{",
            "\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]}}\n\n",
            "data: {\"type\":\"response.content_part.added\",\"sequence_number\":3,",
            "data: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_",
            "\"output_index\":0,\"content_index\":0,\"delta\":\"w0\",\"logprobs\":[]}\n\n", "\"delta\":\" w1\"",
            "data: {\"type\":\"response.output_text.done\",\"sequence_number\":6,", "\"text\":\"w0 w1\"",
            "data: {\"type\":\"response.content_part.done\",\"sequence_number\":7,",
            "data: {\"type\":\"response.output_item.done\",\"sequence_number\":8,", "\"text\":\"w0 w1\"",
            "event: response.incomplete\n", "\"sequence_number\":9,", "\"total_tokens\":2}"));
    struct web_answer a;
    case_begin("a stream that fails ends with response.failed");
    web_ask(&gate, "POST", PATH, "", "{\"input\":\"part\",\"stream\":true}", &a);
    front_check(&a, 200, "event: response.failed\n");
    front_check(&a, 200, "\"error\":{\"code\":\"server_error\",\"message\":\"shutting down\"}");
    case_check(strstr(a.body, "[DONE]") == NULL && strstr(a.body, "response.completed") == NULL, "%s", a.body);
    web_free(&a);
    case_end();
}

int main(void)
{
    front_begin(&fake, &gate);
    requests();
    calls();
    refusals();
    streams();
    return front_finish(&fake, &gate);
}
