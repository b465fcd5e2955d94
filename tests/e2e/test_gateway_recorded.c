/* tests/e2e/test_gateway_recorded.c - requests of official clients at lockstep-gateway, byte by byte as recorded
 * (tests/e2e/recorded/record.py), in front of a fake server. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/front.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FOLDER "tests/e2e/recorded"

static struct fake_server fake;
static struct web_gateway gate;

static const struct {
    const char *name, *part;
} recorded[] = {
    {"openai-models", "{\"object\":\"list\",\"data\":[{\"id\":\"lockstep-stories\","},
    {"openai-completion", "\"text\":\"w0 w1\""},
    {"openai-completion-stream", "data: [DONE]\n\n"},
    {"openai-chat", "\"content\":\"w0 w1"},
    {"openai-response", "\"type\":\"output_text\",\"text\":\"w0 w1\""},
    {"anthropic-message", "\"type\":\"text\",\"text\":\"w0 w1\""},
    {"anthropic-stream", "event: message_stop\n"},
    {"anthropic-count", "{\"input_tokens\":2}"},
    {"boto3-inputs", "{\"generated_text\":\"w0 w1\"}"},
    {"boto3-texts", "{\"outputs\":[\"w0 w1 w2"},
    {"boto3-stream", ""}, /* in frames: tests/e2e/test_gateway_doors.c reads it */
    {"hub-text", "\"generated_text\":\"w0 w1\",\"details\":{"},
    {"hub-stream", "\"generated_text\":\"w0 w1\",\"details\":{"},
    {"triton-ready", ""},
    {"triton-index", "[{\"name\":\"lockstep-stories\","},
};

int main(void)
{
    front_serve(&fake, "lockstep-stories");
    web_start(&gate, true, FRONT_PARTS("--backend", fake.endpoint));
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++) {
        char name[100];
        size_t bytes = 0;
        struct web_answer a;
        case_begin("recorded: %s", recorded[i].name);
        (void)snprintf(name, sizeof name, "%s.http", recorded[i].name);
        char *request = files_read(FOLDER, name, &bytes);
        int fd = web_connect(&gate);
        web_say(fd, request, bytes);
        web_hear(fd, &a, 0);
        front_check(&a, 200, recorded[i].part);
        web_free(&a);
        free(request);
        (void)close(fd);
        case_end();
    }
    return front_finish(&fake, &gate);
}
