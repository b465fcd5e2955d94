/* commands/models/model_folder.h - an option's comma-separated list of model folders. */
#ifndef MODELS_MODEL_FOLDER_H
#define MODELS_MODEL_FOLDER_H

#include "base/err.h"

#include <limits.h>

/* "/models/a" is the folder "a" in "/models", and "b" the folder "b" in ".". */
struct model_folder {
    char dir[PATH_MAX]; /* of the folder that it is in; its name stands behind */
    const char *name;
};

/* The folders of a list to folder[0 .. most). Returns their number; -1: one is not there, or there are more than `most`
 * or fewer than `least`. option: its name, for messages. */
int model_folders_find(struct model_folder *folder, int least, int most, const char *option, const char *list,
                       struct err *e);

#endif
