/* base/repository.h - repositories of the Hugging Face Hub in the local cache of its tools. Nothing is downloaded. */
#ifndef BASE_REPOSITORY_H
#define BASE_REPOSITORY_H

#include "base/err.h"

#include <limits.h>

struct repository {
    char name[256];        /* "Qwen/Qwen3-8B" */
    char folder[PATH_MAX]; /* the revision's: CACHE/models--Qwen--Qwen3-8B/snapshots/HASH */
};

/* Look for `model` as a repository's folder in a cache (.../models--OWNER--NAME), or, unless a file or folder of that
 * name exists, as the name of a repository in the cache that HF_HUB_CACHE or HF_HOME names (default:
 * ~/.cache/huggingface/hub). revision: a branch, a tag or a commit; NULL: refs/main, or the only one. 1: found; 0: it
 * is neither; -1 and *e: no revision can be taken, or an OWNER/NAME is nowhere. */
int repository_find(struct repository *found, const char *model, const char *revision, struct err *e);

#endif
