/* tests/unit/test_eventstream.c - messages of application/vnd.amazon.eventstream. The checksums are zlib's for the same
 * bytes. */
#include "tests/unit/unit.h"

#include "gateway/api/eventstream.h"
#include "gateway/exchange/fault.h"

#include <string.h>

static void check_message(const struct bytes *b, size_t begin, size_t bytes, const char *prelude, const char *checksum)
{
    assert_int_equal(bytes_count(b) - begin, bytes);
    assert_memory_equal(bytes_start(b) + begin, prelude, 12);
    assert_memory_equal(bytes_start(b) + bytes_count(b) - 4, checksum, 4);
}

/* A message is sealed in place: earlier bytes are left alone. */
static void a_part(void **state)
{
    struct bytes b = {0};
    (void)state;
    bytes_text(&b, "00000000\r\n");
    eventstream_framing.open(&b);
    bytes_text(&b, "one\n");
    eventstream_framing.close(&b, 10);
    assert_memory_equal(bytes_start(&b), "00000000\r\n", 10);
    check_message(&b, 10, 109, "\x00\x00\x00\x6d\x00\x00\x00\x59\x16\x37\x85\xc5", "\x9f\x18\x6d\x42");
    assert_memory_equal(bytes_start(&b) + 22, "\x0b:event-type\x07\x00\x0bPayloadPart\x0d:content-type\x07", 40);
    bytes_free(&b);
}

static void a_fault(void **state)
{
    struct bytes b = {0};
    (void)state;
    struct fault f = fault_make(500, "", "gone");
    eventstream_framing.fault(&f, &b);
    check_message(&b, 0, 155, "\x00\x00\x00\x9b\x00\x00\x00\x5e\x4f\x27\xb5\x9b", "\xb2\xe6\x02\x1b");
    bytes_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_part), cmocka_unit_test(a_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
