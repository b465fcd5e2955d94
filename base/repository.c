/* base/repository.c - see repository.h. */
#include "base/repository.h"
#include "base/environment.h"
#include "base/files.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PREFIX         "models--"
#define LONGEST_COMMIT 64

__attribute__((format(printf, 2, 3))) static bool join(char path[PATH_MAX], const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int n = vsnprintf(path, PATH_MAX, format, list);
    va_end(list);
    return n > 0 && n < PATH_MAX;
}

static bool is_folder(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Does it read like "OWNER/NAME" or "NAME"? */
static bool is_name(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t owner = strspn(text, letters);
    if (owner == 0 || text[0] == '.')
        return false;
    if (text[owner] == '\0')
        return true;
    size_t name = text[owner] == '/' ? strspn(text + owner + 1, letters) : 0;
    return name > 0 && text[owner + 1] != '.' && text[owner + 1 + name] == '\0';
}

/* "models--OWNER--NAME" at the end of a path becomes "OWNER/NAME". */
static bool name_of_folder(char *name, size_t bytes, const char *path)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    size_t n = end - begin, prefix = strlen(PREFIX);
    if (n <= prefix || n - prefix >= bytes || strncmp(path + begin, PREFIX, prefix) != 0)
        return false;
    (void)snprintf(name, bytes, "%.*s", (int)(n - prefix), path + begin + prefix);
    char *cut = strstr(name, "--");
    if (cut != NULL) {
        *cut = '/';
        memmove(cut + 1, cut + 2, strlen(cut + 2) + 1);
    }
    return true;
}

static bool cache_folder(char path[PATH_MAX])
{
    static const struct {
        const char *variable, *below;
    } table[] = {{"HF_HUB_CACHE", ""},
                 {"HUGGINGFACE_HUB_CACHE", ""},
                 {"HF_HOME", "/hub"},
                 {"XDG_CACHE_HOME", "/huggingface/hub"},
                 {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *value = environment_value(table[i].variable);
        if (value != NULL && value[0] != '\0')
            return join(path, "%s%s", value, table[i].below);
    }
    return false;
}

static bool cached_folder(char path[PATH_MAX], const char *name)
{
    char cache[PATH_MAX];
    const char *cut = strchr(name, '/');
    if (!cache_folder(cache))
        return false;
    return cut == NULL ? join(path, "%s/" PREFIX "%s", cache, name)
                       : join(path, "%s/" PREFIX "%.*s--%s", cache, (int)(cut - name), name, cut + 1);
}

/* The commit that a file of refs/ names; false: there is none. */
static bool read_reference(char commit[LONGEST_COMMIT + 1], const char *folder, const char *name)
{
    char path[PATH_MAX];
    FILE *f = join(path, "%s/refs/%s", folder, name) ? fopen(path, "re") : NULL;
    bool found = f != NULL && fscanf(f, "%64[0-9a-zA-Z]", commit) == 1;
    if (f != NULL)
        (void)fclose(f);
    return found;
}

/* The only folder in `snapshots`. Returns how many there are. */
static int only_revision(char commit[LONGEST_COMMIT + 1], const char *folder)
{
    char path[PATH_MAX];
    int n = 0;
    DIR *dir = join(path, "%s/snapshots", folder) ? opendir(path) : NULL;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length > LONGEST_COMMIT)
            continue;
        memcpy(commit, entry->d_name, length + 1);
        n++;
    }
    if (dir != NULL)
        (void)closedir(dir);
    return n;
}

/* Finds the commit of a branch, a tag, or of itself. */
static int find_commit(char commit[LONGEST_COMMIT + 1], const char *name, const char *folder, const char *revision,
                       struct err *e)
{
    char path[PATH_MAX];
    if (revision[0] == '\0' || revision[0] == '/' || strstr(revision, "..") != NULL || strlen(revision) > 200)
        return ERR(e, ERR_USAGE, "--revision: found \"%.200s\", expected a branch, a tag or a commit", revision);
    if (read_reference(commit, folder, revision))
        return 0;
    if (strlen(revision) > LONGEST_COMMIT || strchr(revision, '/') != NULL ||
        !join(path, "%s/snapshots/%s", folder, revision) || !is_folder(path))
        return ERR(e, ERR_IO, "%s: no revision %s in %s: hf download %s --revision %s", name, revision, folder, name,
                   revision);
    (void)snprintf(commit, LONGEST_COMMIT + 1, "%s", revision);
    return 0;
}

static int take_revision(struct repository *found, const char *folder, const char *revision, struct err *e)
{
    char commit[LONGEST_COMMIT + 1] = "", config[PATH_MAX];
    int n = revision != NULL || read_reference(commit, folder, "main") ? 1 : only_revision(commit, folder);
    if (n != 1)
        return ERR(e, ERR_INPUT,
                   "%s: %d revisions and no refs/main that names one, expected --revision, or one of %s/snapshots/",
                   found->name, n, folder);
    if (revision != NULL && find_commit(commit, found->name, folder, revision, e) != 0)
        return -1;
    if (!join(found->folder, "%s/snapshots/%s", folder, commit) || !join(config, "%s/config.json", found->folder))
        return ERR(e, ERR_INPUT, "%s: the path of its folder in the cache is too long", found->name);
    if (!files_present(config))
        return ERR(e, ERR_IO, "%s: no config.json in %s: download the rest: hf download %s", found->name, found->folder,
                   found->name);
    return 1;
}

static bool is_of_repository(const char *folder)
{
    char below[PATH_MAX];
    return join(below, "%s/snapshots", folder) && is_folder(below) && join(below, "%s/config.json", folder) &&
           !files_present(below);
}

int repository_find(struct repository *found, const char *model, const char *revision, struct err *e)
{
    char cached[PATH_MAX];
    struct stat info;
    *found = (struct repository){.name = ""};
    if (stat(model, &info) == 0)
        return is_of_repository(model) && name_of_folder(found->name, sizeof found->name, model)
                   ? take_revision(found, model, revision, e)
                   : 0;
    if (!is_name(model) || strlen(model) >= sizeof found->name || !cached_folder(cached, model))
        return 0;
    (void)snprintf(found->name, sizeof found->name, "%s", model);
    if (is_folder(cached))
        return take_revision(found, cached, revision, e);
    if (strchr(model, '/') == NULL)
        return 0;
    return ERR(e, ERR_IO, "%s: no such folder, and no repository of this name in the Hub's cache (%s): hf download %s",
               model, cached, model);
}
