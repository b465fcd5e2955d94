/* tests/support/core_file.c - reads the name of a dead process from the notes of its core file (elf.h,
 * sys/procfs.h). */
#include "tests/support/core_file.h"

#include <dirent.h>
#include <elf.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/procfs.h>

/* Notes are padded to 4 bytes. */
static long padded(unsigned n)
{
    return (long)((n + 3U) & ~3U);
}

/* Searches the notes between `at` and `end` for the process's short name. */
static bool find_name(FILE *f, long at, long end, char name[17])
{
    Elf64_Nhdr note;
    struct elf_prpsinfo info;
    for (; at < end && fseek(f, at, SEEK_SET) == 0 && fread(&note, sizeof note, 1, f) == 1;
         at += (long)sizeof note + padded(note.n_namesz) + padded(note.n_descsz)) {
        if (note.n_type != NT_PRPSINFO || note.n_descsz < sizeof info)
            continue;
        if (fseek(f, padded(note.n_namesz), SEEK_CUR) != 0 || fread(&info, sizeof info, 1, f) != 1)
            return false;
        memcpy(name, info.pr_fname, 16);
        name[16] = '\0';
        return true;
    }
    return false;
}

/* Reads the short name of the process that left the core file; "" if unknown. */
static void read_name(const char *path, char name[17])
{
    Elf64_Ehdr head;
    Elf64_Phdr part;
    bool found = false;
    name[0] = '\0';
    FILE *f = fopen(path, "rbe");
    if (f != NULL && fread(&head, sizeof head, 1, f) == 1 && memcmp(head.e_ident, ELFMAG, SELFMAG) == 0)
        for (int i = 0; i < head.e_phnum && !found; i++) {
            if (fseek(f, (long)(head.e_phoff + (size_t)i * sizeof part), SEEK_SET) != 0 ||
                fread(&part, sizeof part, 1, f) != 1)
                break;
            found = part.p_type == PT_NOTE &&
                    find_name(f, (long)part.p_offset, (long)(part.p_offset + part.p_filesz), name);
        }
    if (f != NULL)
        (void)fclose(f);
}

bool core_file_of_program(const char *dir)
{
    char path[PATH_MAX], name[17];
    bool found = false;
    DIR *d = opendir(dir);
    for (const struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        if (strncmp(entry->d_name, "core", 4) != 0)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        read_name(path, name);
        found = found || (strcmp(name, "mpirun") != 0 && strcmp(name, "orterun") != 0);
    }
    if (d != NULL)
        (void)closedir(d);
    return found;
}
