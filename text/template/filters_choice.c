/* text/template/filters_choice.c - map, select, reject and related filters, which apply another one by its name. */
#include "text/template/renderer.h"

static struct arguments behind(const struct arguments *given, int n)
{
    struct arguments rest = *given;
    if (n > 0)
        rest.value += n;
    rest.n -= n;
    return rest;
}

static struct text inner_name(struct renderer *m, const struct arguments *given, int at)
{
    if (given->n <= at || given->value[at].kind != VALUE_STRING)
        renderer_fail(m, "found no name of a filter or test, expected one as a string");
    return given->value[at].text;
}

static const struct value *named(const struct arguments *given, const char *name)
{
    for (int i = 0; i < given->n_named; i++)
        if (text_is(given->name[i], name))
            return &given->named[i];
    return NULL;
}

static struct value map_member(struct renderer *m, const struct list *all, const struct arguments *given)
{
    struct value out = value_list(&m->heap, FORM_GENERATOR);
    const struct value *path = named(given, "attribute"), *missing = named(given, "default");
    for (size_t i = 0; i < all->n; i++)
        list_add(&m->heap, out.list, member_path(m, all->item[i], *path, missing));
    return out;
}

static struct value map_(struct renderer *m, struct value v, const struct arguments *given)
{
    struct value out = value_list(&m->heap, FORM_GENERATOR);
    struct list all = value_true(v) ? value_iterate(m, v) : (struct list){0};
    if (given->n == 0 && named(given, "attribute") != NULL)
        return map_member(m, &all, given);
    const struct builtin *filter = find_filter(inner_name(m, given, 0));
    struct arguments rest = behind(given, 1);
    if (filter == NULL)
        renderer_fail(m, "found no filter \"%.*s\"", (int)(given->value[0].text.n < 60 ? given->value[0].text.n : 60),
                      given->value[0].text.s);
    renderer_enter(m);
    for (size_t i = 0; i < all.n; i++)
        list_add(&m->heap, out.list, call_builtin(m, filter, all.item[i], &rest));
    renderer_leave(m);
    return out;
}

/* by_member: the first argument is the member to test. Without a test, truth is tested. */
static struct value choose_values(struct renderer *m, struct value v, const struct arguments *given, bool wanted,
                                  bool by_member)
{
    struct value out = value_list(&m->heap, FORM_GENERATOR);
    struct list all = value_true(v) ? value_iterate(m, v) : (struct list){0};
    const struct builtin *test = given->n > by_member ? find_test(inner_name(m, given, by_member)) : NULL;
    struct arguments rest = behind(given, given->n > by_member ? 1 + by_member : given->n);
    if (given->n < by_member || (given->n > by_member && test == NULL))
        renderer_fail(m, "found no such test, or nothing to apply it to");
    renderer_enter(m);
    for (size_t i = 0; i < all.n; i++) {
        struct value subject = by_member ? member_path(m, all.item[i], given->value[0], NULL) : all.item[i];
        bool is = value_true(test != NULL ? call_builtin(m, test, subject, &rest) : subject);
        if (is == wanted)
            list_add(&m->heap, out.list, all.item[i]);
    }
    renderer_leave(m);
    return out;
}

static struct value select_(struct renderer *m, struct value v, const struct arguments *given)
{
    return choose_values(m, v, given, true, false);
}

static struct value reject_(struct renderer *m, struct value v, const struct arguments *given)
{
    return choose_values(m, v, given, false, false);
}

static struct value selectattr(struct renderer *m, struct value v, const struct arguments *given)
{
    return choose_values(m, v, given, true, true);
}

static struct value rejectattr(struct renderer *m, struct value v, const struct arguments *given)
{
    return choose_values(m, v, given, false, true);
}

const struct builtin choice_filters[] = {{"map", NULL, 0, NULL, map_},
                                         {"reject", NULL, 0, NULL, reject_},
                                         {"rejectattr", NULL, 0, NULL, rejectattr},
                                         {"select", NULL, 0, NULL, select_},
                                         {"selectattr", NULL, 0, NULL, selectattr},
                                         {NULL, NULL, 0, NULL, NULL}};
