/* tests/e2e/test_gateway_djl.c - DJLServing's API at lockstep-gateway, in front of a fake server. */
#include "tests/support/cases.h"
#include "tests/support/front.h"

#include <string.h>

#define PATH "/predictions/fake"
#define JSON "Content-Type: application/json\r\n"
#define TEXT "Content-Type: text/plain; charset=utf-8\r\n"

static struct fake_server fake;
static struct web_gateway gate;

static void passes(const char *path, const char *fields, const char *body, const char *message, const char *answer)
{
    front_passes(&fake, &gate, path, fields, body, message, FRONT_PARTS(answer));
}

static void refuses(const char *body, int status, const char *type, const char *part)
{
    front_refuses(&gate, PATH, "", body, status, FRONT_PARTS("{\"code\":", type, "\"message\":", part));
}

static void requests(void)
{
    passes(PATH, TEXT, "Once", "{\"inputs\":\"Once\",\"parameters\":{\"top_k\":50,\"max_new_tokens\":256}}",
           "[{\"generated_text\":\"Oncew0 w1 w2");
    passes("/predictions/fake/1", JSON, "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":2}}",
           "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":2,\"temperature\":0}}",
           "{\"generated_text\":\"w0 w1\"}");
    passes(PATH, JSON,
           "{\"inputs\":\"a\",\"parameters\":{\"temperature\":0.7,\"top_k\":4,\"seed\":3,\"stop\":[],\"watermark\":"
           "false}}",
           "{\"inputs\":\"a\",\"parameters\":{\"seed\":3,\"temperature\":0,\"max_new_tokens\":30}}",
           "{\"generated_text\":\"w0 w1 w2");
    passes(
        PATH, JSON,
        "{\"inputs\":\"a\",\"parameters\":{\"do_sample\":true,\"temperature\":0.7,\"max_new_tokens\":2,\"details\":"
        "true}}",
        "{\"inputs\":\"a\",\"parameters\":{\"temperature\":0.7,\"max_new_tokens\":2},\"logprobs\":0}",
        "{\"generated_text\":\"w0 w1\",\"details\":{\"finish_reason\":\"length\",\"generated_tokens\":2,\"seed\":null,"
        "\"prefill\":[],\"tokens\":[{\"id\":0,\"text\":\"w0\",\"log_prob\":-0.5},{\"id\":1,\"text\":\" "
        "w1\",\"log_prob\":-0.5}]}}");
    passes(PATH, JSON, "{\"inputs\":[\"a\"],\"parameters\":{\"max_new_tokens\":1,\"return_full_text\":true}}",
           "{\"inputs\":[\"a\"],\"parameters\":{\"max_new_tokens\":1,\"temperature\":0}}",
           "[{\"generated_text\":\"aw0\"}]");
    passes(PATH, JSON, "{\"inputs\":\"stop id\",\"parameters\":{\"max_new_tokens\":1,\"details\":true}}",
           "{\"inputs\":\"stop id\",\"parameters\":{\"max_new_tokens\":1,\"temperature\":0},\"logprobs\":0}",
           "\"finish_reason\":\"eos_token\"");
    /* An example: two texts, and the largest length of prompt and answer together; a prompt has 2 tokens here. */
    passes(PATH, JSON, "{\"seq_length\":5,\"text\":[\"a\",\"b\"]}",
           "{\"top_k\":50,\"prompt\":\"b\",\"max_tokens\":3,\"echo\":true}",
           "{\"outputs\":[\"w0 w1 w2\",\"w0 w1 w2\"]}");
    passes(PATH, JSON, "{\"seq_length\":3,\"text\":\"a\",\"temperature\":0.5,\"seed\":9}",
           "{\"temperature\":0.5,\"seed\":9,\"prompt\":\"a\",\"max_tokens\":1,\"echo\":true}",
           "{\"outputs\":[\"w0\"]}");
}

static void refusals(void)
{
    static const char bad[] = "400,\"type\":\"BadRequestException\",";
    refuses("{\"inputs\":\"refuse\"}", 400, bad, "a text that is refused");
    refuses("{\"inputs\":7}", 400, bad, "inputs: found an integer, expected a text or a list of texts");
    refuses("{\"inputs\":\"a\",\"extra\":1}", 400, bad, "extra: unknown field");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"n\":2}}", 400, bad, "n: not implemented here");
    refuses("{\"inputs\":\"a\",\"parameters\":{\"details\":1}}", 400, bad, "details: found an integer");
    refuses("{\"inputs\":[\"a\",\"b\"],\"stream\":true}", 400, bad, "inputs: found 2 texts, expected one in a stream");
    refuses("{\"text\":[\"a\"]}", 400, bad, "seq_length: found nothing");
    refuses("{\"text\":[],\"seq_length\":9}", 400, bad, "expected a text or a list of 1 to 1024 texts");
    refuses("{\"text\":[\"a\",1],\"seq_length\":9}", 400, bad, "text: found an integer");
    refuses("{\"text\":[\"a\",\"b\"],\"seq_length\":2}", 400, bad,
            "seq_length: found 2, expected more than the 2 of text[");
    refuses("{\"text\":[\"a\",\"refuse\",\"b\"],\"seq_length\":9}", 400, bad, "a text that is refused");
    refuses("{\"text\":\"a\",\"seq_length\":9,\"stream\":true}", 400, bad, "stream: unknown field");
    refuses("{}", 400, bad, "inputs: found nothing");
    front_refuses(
        &gate, "/predictions/other", "", "{\"inputs\":\"a\"}", 404,
        FRONT_PARTS(
            "{\"code\":404,\"type\":\"ModelNotFoundException\",\"message\":\"model: \\\"other\\\" is not served"));
    front_refuses(&gate, PATH, TEXT, "\xff", 400, FRONT_PARTS("found bytes that are not UTF-8"));
}

static void streams(void)
{
    struct web_answer a;
    front_passes(
        &fake, &gate, PATH, JSON, "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":2},\"stream\":true}",
        "{\"inputs\":\"a\",\"parameters\":{\"max_new_tokens\":2,\"temperature\":0},\"stream\":true,\"logprobs\":0}",
        FRONT_PARTS(
            "{\"token\":{\"id\":0,\"text\":\"w0\",\"log_prob\":-0.5}}\n",
            "{\"token\":{\"id\":1,\"text\":\" w1\",\"log_prob\":-0.5},\"generated_text\":\"w0 w1\",\"details\":{"
            "\"finish_reason\":\"length\",\"generated_tokens\":2,"));
    case_begin("a stream that fails ends with a line that says so");
    web_ask(&gate, "POST", PATH, "", "{\"inputs\":\"part\",\"stream\":true}", &a);
    front_check(&a, 200, "\"text\":\" w1\"");
    front_check(&a, 200,
                "{\"token\":{\"id\":-1,\"text\":\"\",\"log_prob\":-1,\"special_token\":true},\"generated_text\":\"\","
                "\"details\":{\"finish_reason\":\"error\",\"error\":\"shutting down\"}}\n");
    case_check(strstr(a.head, "Content-Type: application/jsonlines\r\n") != NULL, "%s", a.head);
    web_free(&a);
    case_end();
    case_begin("a stream that is refused is an answer with a status");
    web_ask(&gate, "POST", PATH, "", "{\"inputs\":\"refuse\",\"stream\":true}", &a);
    front_check(&a, 400, "{\"code\":400,");
    web_free(&a);
    case_end();
}

int main(void)
{
    front_begin(&fake, &gate);
    requests();
    refusals();
    streams();
    return front_finish(&fake, &gate);
}
