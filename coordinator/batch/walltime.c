/* coordinator/batch/walltime.c - see walltime.h. */
#include "coordinator/batch/walltime.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_SECONDS 1e9 /* about thirty years: a larger value is a mistake */

static int malformed(const char *text, const char *name, struct err *e)
{
    return ERR(e, ERR_USAGE, "--%s: found \"%.80s\", expected seconds, MM:SS, HH:MM:SS or D-HH:MM:SS, up to %.0f s",
               name, text, MAX_SECONDS);
}

/* Decimal digits. Returns what follows them; NULL: there are none, or too many. */
static const char *read_number(const char *text, double *n)
{
    const char *at = text;
    *n = 0;
    while (isdigit((unsigned char)*at))
        *n = 10 * *n + (*at++ - '0');
    return at > text && at - text <= 12 ? at : NULL;
}

/* Up to three numbers with colons between them; n: how many there are, 0: it is something else. */
static int read_parts(const char *text, double part[3])
{
    for (int n = 0; n < 3; n++) {
        text = read_number(text, &part[n]);
        if (text == NULL || (*text != ':' && *text != '\0'))
            return 0;
        if (*text++ == '\0')
            return n + 1;
    }
    return 0;
}

/* "D-" and then HH, HH:MM or HH:MM:SS */
static int parse_days(double *seconds, const char *text, const char *dash)
{
    double days, part[3] = {0};
    if (read_number(text, &days) != dash || read_parts(dash + 1, part) == 0)
        return -1;
    if (part[0] > 23 || part[1] > 59 || part[2] > 59)
        return -1;
    *seconds = 86400 * days + 3600 * part[0] + 60 * part[1] + part[2];
    return 0;
}

/* MM:SS or HH:MM:SS */
static int parse_clock(double *seconds, const char *text)
{
    double part[3] = {0};
    int n = read_parts(text, part);
    if (n < 2 || part[1] > 59 || part[2] > 59)
        return -1;
    *seconds = n == 2 ? 60 * part[0] + part[1] : 3600 * part[0] + 60 * part[1] + part[2];
    return 0;
}

static int parse_seconds(double *seconds, const char *text)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]))
        return -1;
    *seconds = strtod(text, &end);
    return *end == '\0' && strspn(text, "0123456789.") == strlen(text) ? 0 : -1;
}

int walltime_parse(double *seconds, const char *text, const char *name, struct err *e)
{
    const char *dash = strchr(text, '-');
    if (strcasecmp(text, "unlimited") == 0) {
        *seconds = INFINITY;
        return 0;
    }
    int bad = dash != NULL                ? parse_days(seconds, text, dash)
              : strchr(text, ':') != NULL ? parse_clock(seconds, text)
                                          : parse_seconds(seconds, text);
    return bad == 0 && *seconds <= MAX_SECONDS ? 0 : malformed(text, name, e);
}

int walltime_open(struct walltime *w, const char *limit, const char *job_end, const struct walltime_now *now,
                  struct err *e)
{
    double seconds = INFINITY, started = now->monotonic - (now->since_started > 0 ? now->since_started : 0), epoch;
    *w = (struct walltime){INFINITY, ""};
    if (limit != NULL && walltime_parse(&seconds, limit, "max-walltime", e) != 0)
        return -1;
    if (isfinite(seconds))
        *w = (struct walltime){started + seconds, "--max-walltime"};
    if (job_end == NULL)
        return 0;
    const char *end = read_number(job_end, &epoch);
    if (end == NULL || *end != '\0')
        return ERR(e, ERR_USAGE,
                   "environment variable SLURM_JOB_END_TIME: found \"%.80s\", expected seconds since 1970", job_end);
    if (now->monotonic + (epoch - now->epoch) < w->ends)
        *w = (struct walltime){now->monotonic + (epoch - now->epoch), "SLURM_JOB_END_TIME"};
    return 0;
}

char *walltime_say(char text[WALLTIME_TEXT_BYTES], double seconds)
{
    if (!isfinite(seconds)) {
        (void)snprintf(text, WALLTIME_TEXT_BYTES, "unlimited");
        return text;
    }
    long long s = seconds > 0 ? (long long)seconds : 0;
    if (s >= 86400)
        (void)snprintf(text, WALLTIME_TEXT_BYTES, "%lld-%02lld:%02lld:%02lld", s / 86400, s / 3600 % 24, s / 60 % 60,
                       s % 60);
    else if (s >= 3600)
        (void)snprintf(text, WALLTIME_TEXT_BYTES, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        (void)snprintf(text, WALLTIME_TEXT_BYTES, "%lld:%02lld", s / 60, s % 60);
    return text;
}
