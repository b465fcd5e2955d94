/* gateway/http/head.c - see head.h. */
#include "gateway/http/head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define MAX_LENGTH_DIGITS 18

static int refuse(struct http_refusal *r, int status, const char *message)
{
    *r = (struct http_refusal){status, message};
    return -1;
}

static size_t refuse_find(struct http_refusal *r, const char *message)
{
    (void)refuse(r, 400, message);
    return 0;
}

size_t http_head_find(const char *text, size_t bytes, size_t *scanned, struct http_refusal *r)
{
    size_t i = *scanned;
    for (; i < bytes && i < HTTP_HEAD_BYTES; i++) {
        if (text[i] == '\0')
            return refuse_find(r, "a NUL in the head");
        if (text[i] == '\n' && (i == 0 || text[i - 1] != '\r'))
            return refuse_find(r, "a line of the head ends with LF alone, expected CRLF");
        if (text[i] != '\n' && i > 0 && text[i - 1] == '\r')
            return refuse_find(r, "a CR in the head without a following LF");
        if (text[i] == '\n' && i >= 3 && text[i - 2] == '\n')
            return *scanned = i + 1;
    }
    *scanned = i;
    if (i >= HTTP_HEAD_BYTES)
        (void)refuse(r, 431, "the head has more than 65536 bytes");
    return 0;
}

/* Is it a character of methods and field names? */
static bool is_token(unsigned char c)
{
    return isalnum(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool all_token(const char *text)
{
    const char *c = text;
    while (is_token((unsigned char)*c))
        c++;
    return c > text && *c == '\0';
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes in place. -1: a "%" without two digits, or an encoded NUL. */
static int decode(char *path)
{
    char *to = path;
    for (const char *from = path; *from != '\0'; from++) {
        bool coded = *from == '%';
        int high = coded ? hex_digit(from[1]) : 0, low = coded && high >= 0 ? hex_digit(from[2]) : 0;
        if (high < 0 || low < 0 || (coded && high + low == 0))
            return -1;
        *to++ = coded ? (char)(16 * high + low) : *from;
        from += coded ? 2 : 0;
    }
    *to = '\0';
    return 0;
}

/* "/path?query", or the same after "http://host". */
static int read_target(struct http_head *h, char *target, struct http_refusal *r)
{
    for (const char *c = target; *c != '\0'; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || *c == '#')
            return refuse(r, 400, "the request's target has a character that must be written as %XX");
    if (strncasecmp(target, "http://", 7) == 0) {
        char *path = strchr(target + 7, '/');
        if (path == NULL || path == target + 7)
            return refuse(r, 400, "the request's target has no path");
        target = path;
    }
    if (target[0] != '/')
        return refuse(r, 400, "the request's target does not begin with \"/\"");
    char *query = strchr(target, '?');
    if (query != NULL)
        *query++ = '\0';
    h->query = query != NULL ? query : "";
    h->path = target;
    return decode(target) == 0 ? 0 : refuse(r, 400, "the request's target has a \"%\" without two hexadecimal digits");
}

/* "METHOD target HTTP/1.1": one blank between them. */
static int read_request_line(struct http_head *h, char *line, struct http_refusal *r)
{
    char *target = strchr(line, ' '), *version = target != NULL ? strchr(target + 1, ' ') : NULL;
    if (version == NULL || strchr(version + 1, ' ') != NULL)
        return refuse(r, 400, "the request's line is not \"METHOD TARGET HTTP/1.1\"");
    *target++ = '\0';
    *version++ = '\0';
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return strncmp(version, "HTTP/", 5) == 0 && isdigit((unsigned char)version[5])
                   ? refuse(r, 505, "only HTTP/1.1 and HTTP/1.0 are supported")
                   : refuse(r, 400, "the request's line is not \"METHOD TARGET HTTP/1.1\"");
    if (!all_token(line))
        return refuse(r, 400, "the request's method is not a word");
    h->method = line;
    h->minor = version[7] - '0';
    return read_target(h, target, r);
}

int http_field_read(char *line, struct http_field *f)
{
    char *c = line;
    for (; is_token((unsigned char)*c); c++)
        *c = (char)tolower((unsigned char)*c);
    if (c == line || *c != ':')
        return -1;
    *c++ = '\0';
    c += strspn(c, " \t");
    size_t n = strlen(c);
    while (n > 0 && (c[n - 1] == ' ' || c[n - 1] == '\t'))
        c[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)c[i] < ' ' && c[i] != '\t') || c[i] == 0x7f)
            return -1;
    *f = (struct http_field){line, c};
    return 0;
}

const char *http_head_get(const struct http_head *h, const char *name)
{
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcmp(h->field[i].name, name) == 0)
            return h->field[i].value;
    return NULL;
}

static size_t count(const struct http_head *h, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_fields; i++)
        n += strcmp(h->field[i].name, name) == 0;
    return n;
}

static int read_length(struct http_head *h, const char *text, struct http_refusal *r)
{
    size_t n = strlen(text);
    if (n == 0 || n > MAX_LENGTH_DIGITS || strspn(text, "0123456789") != n)
        return refuse(r, 400, "Content-Length is not a number");
    h->framing = HTTP_LENGTH;
    for (const char *c = text; *c != '\0'; c++)
        h->length = 10 * h->length + (uint64_t)(*c - '0');
    return 0;
}

/* The length of the body, which must be given once, in one way. */
static int read_framing(struct http_head *h, struct http_refusal *r)
{
    const char *length = http_head_get(h, "content-length"), *coding = http_head_get(h, "transfer-encoding");
    h->framing = HTTP_NO_BODY;
    h->length = 0;
    if (count(h, "content-length") > 1)
        return refuse(r, 400, "Content-Length is given twice");
    if (count(h, "transfer-encoding") > 1)
        return refuse(r, 400, "Transfer-Encoding is given twice");
    if (length != NULL && coding != NULL)
        return refuse(r, 400, "Content-Length is given beside Transfer-Encoding");
    if (coding != NULL && h->minor == 0)
        return refuse(r, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (coding != NULL && strcasecmp(coding, "chunked") != 0)
        return refuse(r, 400, "of Transfer-Encoding only \"chunked\" is supported");
    if (coding != NULL)
        h->framing = HTTP_CHUNKED;
    return length != NULL ? read_length(h, length, r) : 0;
}

/* Is the word one of a list "a, b"? */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *c = list; c != NULL && *c != '\0'; c += *c == ',') {
        c += strspn(c, " \t");
        size_t end = strcspn(c, ",");
        size_t bytes = end;
        while (bytes > 0 && (c[bytes - 1] == ' ' || c[bytes - 1] == '\t'))
            bytes--;
        if (bytes == n && strncasecmp(c, word, n) == 0)
            return true;
        c += end;
    }
    return false;
}

static int read_connection(struct http_head *h, struct http_refusal *r)
{
    const char *expect = http_head_get(h, "expect");
    h->keep = h->minor == 1;
    for (size_t i = 0; i < h->n_fields; i++)
        if (strcmp(h->field[i].name, "connection") == 0 && has_word(h->field[i].value, "close"))
            h->keep = false;
    if (count(h, "host") > 1)
        return refuse(r, 400, "Host is given twice");
    if (h->minor == 1 && count(h, "host") == 0)
        return refuse(r, 400, "HTTP/1.1 needs a Host");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return refuse(r, 417, "of Expect only \"100-continue\" is supported");
    h->expects = expect != NULL && h->minor == 1;
    return 0;
}

int http_head_read(struct http_head *h, char *text, size_t bytes, struct http_refusal *r)
{
    char *end = text + bytes - 2, *line = text; /* the empty line */
    h->n_fields = 0;
    for (char *next; line < end; line = next) {
        char *stop = memchr(line, '\r', (size_t)(end - line));
        *stop = '\0'; /* http_head_find saw that each CR has its LF */
        next = stop + 2;
        if (line == text) {
            if (read_request_line(h, line, r) != 0)
                return -1;
            continue;
        }
        if (*line == ' ' || *line == '\t')
            return refuse(r, 400, "a field of the head continues on a second line");
        if (h->n_fields == HTTP_MAX_FIELDS)
            return refuse(r, 431, "the head has more than 128 fields");
        if (http_field_read(line, &h->field[h->n_fields]) != 0)
            return refuse(r, 400, "a field of the head is not \"NAME: VALUE\"");
        h->n_fields++;
    }
    return read_framing(h, r) == 0 ? read_connection(h, r) : -1;
}
