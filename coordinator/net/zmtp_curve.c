/* coordinator/net/zmtp_curve.c - see zmtp_curve.h. Names in comments are the RFC's: C and S are the long-term keys of
 * client and server, C' and S' those of this connection. */
#include "coordinator/net/zmtp_curve.h"

#include <sodium.h>
#include <string.h>

#define SHORT    8  /* bytes of a nonce sent after a 16-byte name, */
#define LONG     16 /* and after an 8-byte one */
#define MAC      crypto_box_MACBYTES
#define HELLO    200
#define INITIATE 257 /* with no metadata */

_Static_assert(crypto_box_PUBLICKEYBYTES == ZMTP_KEY_BYTES && crypto_box_SECRETKEYBYTES == ZMTP_KEY_BYTES &&
                   crypto_box_BEFORENMBYTES == ZMTP_KEY_BYTES && crypto_box_NONCEBYTES == 24,
               "Curve25519, XSalsa20, Poly1305");
_Static_assert(ZMTP_BOX_BYTES == 8 + SHORT + MAC + 1 && ZMTP_READY_EXTRA == 6 + SHORT + MAC,
               "layout of MESSAGE and READY");

struct nonce {
    unsigned char bytes[crypto_box_NONCEBYTES];
};

static struct nonce make_nonce(const char *name, const void *rest, size_t n_rest)
{
    struct nonce n;
    memcpy(n.bytes, name, sizeof n.bytes - n_rest);
    memcpy(n.bytes + sizeof n.bytes - n_rest, rest, n_rest);
    return n;
}

static uint64_t get_u64(const unsigned char *at)
{
    uint64_t x = 0;
    for (int i = 0; i < 8; i++)
        x = x << 8 | at[i];
    return x;
}

static void put_u64(unsigned char *at, uint64_t x)
{
    for (int i = 7; i >= 0; i--, x >>= 8)
        at[i] = (unsigned char)x;
}

void zmtp_curve_close(struct zmtp_curve *c)
{
    sodium_memzero(c, sizeof *c);
}

/* [S' + cookie](S->C'). The cookie allows a server to forget a client meanwhile; this server does not, so it sends
 * random bytes. */
static int welcome(struct zmtp_curve *c, const struct zmtp_keys *keys, unsigned char *out)
{
    unsigned char plain[ZMTP_KEY_BYTES + ZMTP_COOKIE];
    (void)crypto_box_keypair(c->public_key, c->secret_key);
    randombytes_buf(c->cookie, sizeof c->cookie);
    memcpy(plain, c->public_key, ZMTP_KEY_BYTES);
    memcpy(plain + ZMTP_KEY_BYTES, c->cookie, ZMTP_COOKIE);
    memcpy(out, "\7WELCOME", 8);
    randombytes_buf(out + 8, LONG);
    const struct nonce n = make_nonce("WELCOME-", out + 8, LONG);
    return crypto_box_easy(out + 8 + LONG, plain, sizeof plain, n.bytes, c->client, keys->secret_key);
}

int zmtp_curve_hello(struct zmtp_curve *c, const struct zmtp_keys *keys, const unsigned char *command, size_t n,
                     unsigned char *out)
{
    static const unsigned char zeros[64];
    unsigned char plain[64];
    if (n != HELLO || memcmp(command, "\5HELLO\1\0", 8) != 0)
        return -1;
    memcpy(c->client, command + 80, ZMTP_KEY_BYTES);
    c->client_nonce = get_u64(command + 112);
    const struct nonce nonce = make_nonce("CurveZMQHELLO---", command + 112, SHORT);
    if (crypto_box_open_easy(plain, command + 120, sizeof plain + MAC, nonce.bytes, c->client, keys->secret_key) != 0 ||
        memcmp(plain, zeros, sizeof zeros) != 0)
        return -1;
    c->state = CURVE_INITIATE;
    return welcome(c, keys, out);
}

/* plain: C, the vouch's nonce, the vouch = [C' + S](C->S'). */
static bool vouches(const struct zmtp_curve *c, const struct zmtp_keys *keys, const unsigned char *plain)
{
    unsigned char vouch[2 * ZMTP_KEY_BYTES];
    const struct nonce nonce = make_nonce("VOUCH---", plain + 32, LONG);
    return crypto_box_open_easy(vouch, plain + 48, sizeof vouch + MAC, nonce.bytes, plain, c->secret_key) == 0 &&
           sodium_memcmp(vouch, c->client, ZMTP_KEY_BYTES) == 0 &&
           sodium_memcmp(vouch + ZMTP_KEY_BYTES, keys->public_key, ZMTP_KEY_BYTES) == 0;
}

int zmtp_curve_initiate(struct zmtp_curve *c, const struct zmtp_keys *keys, unsigned char *command, size_t n,
                        const unsigned char **metadata, size_t *n_metadata)
{
    enum { BOX = 9 + ZMTP_COOKIE + SHORT, FIXED = 128 };
    if (n < INITIATE || memcmp(command, "\10INITIATE", 9) != 0 ||
        sodium_memcmp(command + 9, c->cookie, ZMTP_COOKIE) != 0)
        return -1;
    uint64_t number = get_u64(command + 9 + ZMTP_COOKIE);
    const struct nonce nonce = make_nonce("CurveZMQINITIATE", command + 9 + ZMTP_COOKIE, SHORT);
    unsigned char *plain = command + BOX;
    if (number <= c->client_nonce ||
        crypto_box_open_easy(plain, plain, n - BOX, nonce.bytes, c->client, c->secret_key) != 0 ||
        !vouches(c, keys, plain) || crypto_box_beforenm(c->shared, c->client, c->secret_key) != 0)
        return -1;
    c->client_nonce = number;
    *metadata = plain + FIXED;
    *n_metadata = n - BOX - MAC - FIXED;
    c->state = CURVE_DONE;
    return keys->allows(keys->context, plain) ? 0 : 1;
}

size_t zmtp_curve_ready(struct zmtp_curve *c, const unsigned char *metadata, size_t n, unsigned char *out)
{
    memcpy(out, "\5READY", 6);
    put_u64(out + 6, ++c->nonce);
    const struct nonce nonce = make_nonce("CurveZMQREADY---", out + 6, SHORT);
    (void)crypto_box_easy_afternm(out + 6 + SHORT, metadata, n, nonce.bytes, c->shared);
    return n + ZMTP_READY_EXTRA;
}

int zmtp_curve_open(struct zmtp_curve *c, unsigned char *frame, size_t n, unsigned char *flags, unsigned char **plain,
                    size_t *n_plain)
{
    if (n < ZMTP_BOX_BYTES || memcmp(frame, "\7MESSAGE", 8) != 0)
        return -1;
    uint64_t number = get_u64(frame + 8);
    const struct nonce nonce = make_nonce("CurveZMQMESSAGEC", frame + 8, SHORT);
    unsigned char *box = frame + 8 + SHORT;
    if (number <= c->client_nonce || crypto_box_open_easy_afternm(box, box, n - 8 - SHORT, nonce.bytes, c->shared) != 0)
        return -1;
    c->client_nonce = number;
    *flags = *box;
    *plain = box + 1;
    *n_plain = n - ZMTP_BOX_BYTES;
    return 0;
}

void zmtp_curve_seal(struct zmtp_curve *c, unsigned char flags, const void *plain, size_t n, unsigned char *out)
{
    unsigned char *box = out + 8 + SHORT;
    memcpy(out, "\7MESSAGE", 8);
    put_u64(out + 8, ++c->nonce);
    const struct nonce nonce = make_nonce("CurveZMQMESSAGES", out + 8, SHORT);
    /* In place, with the plain text after the authenticator, from where libsodium moves it. */
    box[MAC] = flags;
    if (n > 0)
        memcpy(box + MAC + 1, plain, n);
    (void)crypto_box_easy_afternm(box, box + MAC, n + 1, nonce.bytes, c->shared);
}
