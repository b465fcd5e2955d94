/* client/top_models.c - see top_models.h. Names and states come from the server and are untrusted: only printable
 * characters reach the terminal. */
#include "client/top_models.h"
#include "base/utf8.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS 60 /* of a name, at most */
#define NAME_BYTES      (4 * NAME_CHARACTERS + sizeof "...")
#define MIB             1048576.0

static const char *text_of(const json_t *model, const char *member)
{
    const char *text = json_string_value(json_object_get(model, member));
    return text != NULL ? text : "-";
}

static bool is_ready(const json_t *model)
{
    return strcmp(text_of(model, "state"), "ready") == 0;
}

static bool in_use(const json_t *model)
{
    return json_number_value(json_object_get(model, "running")) > 0 ||
           json_number_value(json_object_get(model, "waiting")) > 0;
}

/* Seconds since its last use; INFINITY: it has not been used. */
static double idle(const json_t *model)
{
    const json_t *seconds = json_object_get(model, "idle_s");
    return in_use(model) ? 0 : json_is_number(seconds) ? json_number_value(seconds) : (double)INFINITY;
}

/* Inserts it into the n most recently used, in order; returns their number. */
static size_t insert(const json_t *shown[TOP_MODELS], size_t n, const json_t *model)
{
    size_t at = n;
    while (at > 0 && idle(model) < idle(shown[at - 1]))
        at--;
    if (at == TOP_MODELS)
        return n;
    n += n < TOP_MODELS;
    memmove(&shown[at + 1], &shown[at], (n - 1 - at) * sizeof(shown[0]));
    shown[at] = model;
    return n;
}

/* Would it move the cursor, colour the following text, or change the text direction? */
static bool is_control(int32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x61c || (cp >= 0x200b && cp <= 0x200f) ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff;
}

/* The text's first characters, "?" for unprintable ones. It is valid UTF-8, as jansson accepts no other. */
static const char *printed(char to[NAME_BYTES], const char *text, int most)
{
    size_t used = 0;
    for (int n = 0; *text != '\0' && n < most; n++) {
        int32_t cp = 0;
        text += utf8_next(text, &cp);
        used += utf8_put(to + used, is_control(cp) ? '?' : cp);
    }
    (void)snprintf(to + used, NAME_BYTES - used, "%s", *text != '\0' ? "..." : "");
    return to;
}

static const char *number(char text[32], double x, const char *format)
{
    if (!isfinite(x))
        return "-";
    (void)snprintf(text, 32, format, x);
    return text;
}

/* "ready", or on two sets of ranks "ready x2". */
static const char *state_of(char to[NAME_BYTES + 32], const json_t *model)
{
    long long n_sets = (long long)json_integer_value(json_object_get(model, "replicas"));
    char state[NAME_BYTES];
    (void)printed(state, text_of(model, "state"), 10);
    (void)snprintf(to, NAME_BYTES + 32, n_sets > 1 ? "%s x%lld" : "%s", state, n_sets);
    return to;
}

static void print_row(const json_t *model, const struct samples *now)
{
    const char *name = text_of(model, "id");
    double bytes = json_number_value(json_object_get(model, "bytes"));
    char state[NAME_BYTES + 32], shown[NAME_BYTES], text[4][32];
    printf("%-10s %12s %12s %12s %12s  %s\n", state_of(state, model),
           bytes > 0 ? number(text[0], bytes / MIB, "%.1f MiB") : "-",
           number(text[3], samples_sum(now, "model_kv_bytes", "model", name) / MIB, "%.1f MiB"),
           in_use(model) ? "now" : number(text[1], idle(model), "%.1f s"),
           number(text[2], samples_sum(now, "model_loads_total", "model", name), "%.0f"),
           printed(shown, name, NAME_CHARACTERS));
}

void top_print_models(const json_t *list, const struct samples *now)
{
    const json_t *shown[TOP_MODELS], *model;
    size_t n = 0, n_ready = 0, n_shown_ready = 0, i;
    char text[4][32];
    double kv = samples_sum(now, "models_kv_memory_bytes", NULL, NULL);
    json_array_foreach(list, i, model)
    {
        n = insert(shown, n, model);
        n_ready += is_ready(model);
    }
    printf("models     %zu of %zu loaded, %s of %s MiB on a rank; keys and values %s of %s\n", n_ready,
           json_array_size(list), number(text[0], samples_sum(now, "models_used_bytes", NULL, NULL) / MIB, "%.1f"),
           number(text[1], samples_sum(now, "models_memory_bytes", NULL, NULL) / MIB, "%.1f"),
           number(text[2], (kv - samples_sum(now, "models_kv_free_bytes", NULL, NULL)) / MIB, "%.1f"),
           number(text[3], kv / MIB, "%.1f"));
    printf("%-10s %12s %12s %12s %12s  %s\n", "state", "bytes", "keys, values", "last use", "loads", "model");
    for (i = 0; i < n; i++) {
        print_row(shown[i], now);
        n_shown_ready += is_ready(shown[i]);
    }
    if (json_array_size(list) > n)
        printf("and %zu more, %zu of them loaded\n", json_array_size(list) - n, n_ready - n_shown_ready);
}
