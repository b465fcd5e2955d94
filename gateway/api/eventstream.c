/* gateway/api/eventstream.c - see eventstream.h. A message: its length and that of its headers, a checksum of these
 * eight bytes, headers, payload, a checksum of all before. Big-endian; a header is a name, a type (7: text), a
 * value. */
#include "gateway/api/eventstream.h"
#include "gateway/exchange/fault.h"

#include <stdint.h>
#include <string.h>

#define PRELUDE 12
#define TEXT    7

/* CRC-32 of IEEE 802.3, bit by bit from a table of half bytes. */
static uint32_t checksum(const char *text, size_t bytes)
{
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= (unsigned char)text[i];
        crc = (crc >> 4) ^ table[crc & 15];
        crc = (crc >> 4) ^ table[crc & 15];
    }
    return ~crc;
}

static void put_u32(char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (char)(value >> (24 - 8 * i));
}

static void add_header(struct bytes *to, const char *name, const char *value)
{
    size_t n = strlen(name), v = strlen(value);
    const char lengths[] = {(char)n, TEXT, (char)(v >> 8), (char)v};
    bytes_append(to, lengths, 1);
    bytes_append(to, name, n);
    bytes_append(to, lengths + 1, 3);
    bytes_append(to, value, v);
}

/* The lengths and checksums of the message that begins at `begin`, whose headers end at `payload`. */
static void seal(struct bytes *to, size_t begin, size_t payload)
{
    char check[4] = {0};
    if (to->failed)
        return;
    char *message = bytes_start(to) + begin;
    size_t all = bytes_count(to) - begin;
    put_u32(message, (uint32_t)(all + sizeof check));
    put_u32(message + 4, (uint32_t)(payload - begin - PRELUDE));
    put_u32(message + 8, checksum(message, 8));
    put_u32(check, checksum(message, all));
    bytes_append(to, check, sizeof check);
}

static void begin_part(struct bytes *to)
{
    bytes_append(to, (const char[PRELUDE]){0}, PRELUDE);
    add_header(to, ":event-type", "PayloadPart");
    add_header(to, ":content-type", "application/octet-stream");
    add_header(to, ":message-type", "event");
}

/* All parts have the same headers. */
static size_t part_head(void)
{
    static size_t bytes;
    struct bytes b = {0};
    if (bytes == 0) {
        begin_part(&b);
        bytes = b.failed ? 0 : bytes_count(&b);
        bytes_free(&b);
    }
    return bytes;
}

static void end_part(struct bytes *to, size_t begin)
{
    seal(to, begin, begin + part_head());
}

static void write_fault(const struct fault *f, struct bytes *to)
{
    size_t begin = bytes_count(to);
    bytes_append(to, (const char[PRELUDE]){0}, PRELUDE);
    add_header(to, ":exception-type", "ModelStreamError");
    add_header(to, ":content-type", "application/json");
    add_header(to, ":message-type", "exception");
    size_t payload = bytes_count(to);
    bytes_format(to, "{\"ErrorCode\":\"%s\",\"Message\":", f->type);
    bytes_json_string(to, f->message, strlen(f->message));
    bytes_text(to, "}");
    seal(to, begin, payload);
}

const struct framing eventstream_framing = {
    .type = "application/vnd.amazon.eventstream", .open = begin_part, .close = end_part, .fault = write_fault};
