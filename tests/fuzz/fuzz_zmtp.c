/* tests/fuzz/fuzz_zmtp.c - libFuzzer target for bytes that a client sends: after a valid greeting and READY (first byte
 * odd), or from the beginning, in pieces of a size that the input selects, plain or with CURVE. */
#include "coordinator/net/zmtp.h"
#include "tests/fuzz/fuzz.h"

static const unsigned char opening[] = {
    0xff, 0,   0,   0,   0,   0,   0,   0,   1,  0x7f, 3,   1,   'N', 'U', 'L', 'L', 0,   0,   0,
    0,    0,   0,   0,   0,   0,   0,   0,   0,  0,    0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,    0,   0,   0,   0,   0,   0,   0,   0,  0,    0,   0,   0,   0,   0,   0,   0,   0,   0,
    0,    0,   0,   0,   0,   0,   0,   4,   28, 5,    'R', 'E', 'A', 'D', 'Y', 11,  'S', 'o', 'c',
    'k',  'e', 't', '-', 'T', 'y', 'p', 'e', 0,  0,    0,   6,   'D', 'E', 'A', 'L', 'E', 'R'};

static bool allows(void *context, const unsigned char key[ZMTP_KEY_BYTES])
{
    (void)context;
    return key[0] % 2 == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct zmtp_keys keys = {.allows = allows};
    struct zmtp z;
    if (n < 2)
        return 0;
    size_t piece = 1 + data[1] % 64;
    bool open = data[0] % 2 == 1, curve = !open && data[0] % 4 == 2;
    zmtp_open(&z, curve ? &keys : NULL, 4096);
    must(!open || zmtp_feed(&z, opening, sizeof opening) == 0);
    for (size_t i = 2; i < n; i += piece)
        if (zmtp_feed(&z, data + i, piece < n - i ? piece : n - i) != 0)
            break;
    for (struct zmtp_message *m; (m = zmtp_take(&z)) != NULL; zmtp_message_free(m))
        must(m->bytes <= 4096 && (m->bytes > 0) == (m->body != NULL));
    zmtp_close(&z);
    return 0;
}
