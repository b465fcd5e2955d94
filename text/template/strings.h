/* text/template/strings.h - functions shared by filters and methods on strings. */
#ifndef TEXT_TEMPLATE_STRINGS_H
#define TEXT_TEMPLATE_STRINGS_H

#include "text/template/renderer.h"

struct text string_upper(struct renderer *m, struct text t);
struct text string_lower(struct renderer *m, struct text t);
struct text string_capitalize(struct renderer *m, struct text t);
/* most < 0: all. */
struct text string_replace(struct renderer *m, struct text t, struct text old, struct text by, int64_t most);
/* The lines, without their ends. */
struct value string_lines(struct renderer *m, struct text t);
/* Joined by `between`; items as str() prints them, or strings only. */
struct text string_join(struct renderer *m, struct text between, const struct list *items, bool strings_only);
/* "%s" % x; "{}".format(x). */
struct text string_percent(struct renderer *m, struct text t, const struct arguments *given);
struct text string_format(struct renderer *m, struct text t, const struct arguments *given);

#endif
