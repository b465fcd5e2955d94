/* coordinator/batch/result.c - see result.h. */
#include "coordinator/batch/result.h"
#include "base/json.h"

#include <string.h>

char *result_line(const struct line *l, bool plain, size_t *bytes)
{
    const struct job *j = l->job;
    const struct request *r =
        j->n_groups > 0 && j->group[0].choice != NULL && j->error.code == 0 ? j->group[0].choice[0] : NULL;
    (void)plain;
    json_t *object = r != NULL ? json_pack("{s:s, s:s#, s:s}", "id", l->id, "text", r->text.data, (int)r->released,
                                           "finish_reason", finish_name(r->finish))
                               : json_pack("{s:s, s:{s:i, s:s, s:s}}", "id", l->id, "error", "code", j->error.code,
                                           "field", j->error.field, "message", j->error.message);
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    *bytes = text != NULL ? strlen(text) + 1 : 0;
    if (text != NULL)
        text[*bytes - 1] = '\n';
    return text;
}
