/* tests/e2e/test_odd_files.c - paths that are not regular files: pipes, devices, dangling and circular links, missing
 * folders. Each is refused by name within seconds, before anything is loaded, and stays unchanged. */
#include "tests/support/cases.h"
#include "tests/support/files.h"
#include "tests/support/models.h"
#include "tests/support/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[256], path[400];

static const char *in_folder(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* Runs with these arguments (NULL at the end); expects this status and a line that contains the words. */
static void check_refused(int status, const char *words, const char *const *argument)
{
    struct process p;
    process_run(&p, &(struct process_setup){.ranks = 1, .limit = 30}, argument);
    case_check(p.status == status && strstr(p.text[PROCESS_ERR], words) != NULL,
               "status %d, expected %d and \"%s\": %s", p.status, status, words, p.text[PROCESS_ERR]);
    case_check(!p.timed_out && process_in_time(p.seconds, 5), "it took %.1f s", p.seconds);
    case_check(p.text[PROCESS_ERR] == NULL || strstr(p.text[PROCESS_ERR], "ready:") == NULL,
               "the model was loaded first");
    process_free(&p);
}

#define REFUSED(status, words, ...) check_refused(status, words, (const char *[]){__VA_ARGS__, NULL})

static void replaced(void)
{
    struct stat before, after;
    char pipe[400], device[400], input[400], output[400];
    case_begin("output files: anything but a regular file is refused and stays");
    (void)snprintf(input, sizeof input, "%s", in_folder("in.jsonl"));
    (void)snprintf(output, sizeof output, "%s", in_folder("out.jsonl"));
    (void)snprintf(pipe, sizeof pipe, "%s", in_folder("pipe"));
    files_write(folder, "in.jsonl", "{\"prompt\": \"Once\", \"max_tokens\": 2}\n", 36);
    case_check(mkfifo(pipe, 0600) == 0, "no pipe");
    const char *what = "/dev/null";
    if (mknod(in_folder("null"), S_IFCHR | 0666, makedev(1, 3)) == 0) { /* as root: a device that may be lost */
        (void)snprintf(device, sizeof device, "%s", path);
        what = device;
    }
    const char *const options[] = {"--rendezvous", "--metrics-file"};
    for (int i = 0; i < 2; i++) {
        REFUSED(2, "it is a device", "serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*", options[i],
                what);
        REFUSED(2, "it is a pipe", "serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*", options[i],
                pipe);
        REFUSED(2, "it is a folder", "serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*", options[i],
                folder);
        REFUSED(5, "cannot write into its folder", "serve", "--model", models_demo(), "--endpoint", "tcp://127.0.0.1:*",
                options[i], "/no/such/folder/x");
    }
    const char *const of_batch[] = {"--status-file", "--metrics-file"};
    for (int i = 0; i < 2; i++) {
        REFUSED(2, "it is a device", "batch", "--model", models_demo(), "--input", input, "--output", output,
                of_batch[i], what);
        REFUSED(2, "it is a pipe", "batch", "--model", models_demo(), "--input", input, "--output", output, of_batch[i],
                pipe);
        REFUSED(5, "cannot write into its folder", "batch", "--model", models_demo(), "--input", input, "--output",
                output, of_batch[i], "/no/such/folder/x");
    }
    case_check(lstat(what, &after) == 0 && S_ISCHR(after.st_mode), "the device is gone");
    case_check(lstat(pipe, &before) == 0 && S_ISFIFO(before.st_mode), "the pipe is gone");
    case_end();
}

/* A pipe that only the batch itself had open swallowed all results, with status 0. */
static void output_pipe(void)
{
    char input[400], pipe[400], text[4096] = "";
    struct process p;
    case_begin("batch --output PIPE: refused without a reader, then read");
    (void)snprintf(input, sizeof input, "%s", in_folder("in.jsonl"));
    (void)snprintf(pipe, sizeof pipe, "%s", in_folder("results"));
    case_check(mkfifo(pipe, 0600) == 0, "no pipe");
    REFUSED(5, "the pipe has no reader", "batch", "--model", models_demo(), "--input", input, "--output", pipe);
    int fd = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    process_run(
        &p, &(struct process_setup){.ranks = 1, .limit = 60},
        (const char *[]){"batch", "--model", models_demo(), "--input", input, "--output", pipe, "--plain", NULL});
    ssize_t n = read(fd, text, sizeof text - 1);
    case_check(p.status == 0 && n > 0 && strstr(text, "\"text\"") != NULL, "status %d, %zd bytes: %s", p.status, n,
               text);
    (void)close(fd);
    process_free(&p);
    case_end();
}

/* Makes a copy of the demo model in which one file is something else. */
static void model_with(const char *name, const char *link, char *model, size_t bytes)
{
    static int n;
    char command[1200];
    (void)snprintf(model, bytes, "%s/model-%d", folder, n++);
    (void)snprintf(command, sizeof command, "cp -rL '%s' '%s' && rm -f '%s/%s'", models_demo(), model, model, name);
    case_check(system(command) == 0, "no copy of the model");
    (void)snprintf(path, sizeof path, "%s/%s", model, name);
    case_check(link != NULL ? symlink(link, path) == 0 : mkfifo(path, 0600) == 0, "cannot make %s", path);
}

static void model_files(void)
{
    static const char *const names[] = {
        "config.json",         "tokenizer.json",          "tokenizer_config.json", "generation_config.json",
        "chat_template.jinja", "special_tokens_map.json", "chat_template.json"};
    char model[300], input[400], output[400];
    case_begin("a model's files: pipes, devices, dangling and circular links are refused by name");
    (void)snprintf(input, sizeof input, "%s", in_folder("in.jsonl"));
    (void)snprintf(output, sizeof output, "%s", in_folder("out.jsonl"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        model_with(names[i], NULL, model, sizeof model);
        REFUSED(3, names[i], "batch", "--model", model, "--input", input, "--output", output);
        model_with(names[i], "nowhere", model, sizeof model);
        REFUSED(5, names[i], "batch", "--model", model, "--input", input, "--output", output);
        model_with(names[i], names[i], model, sizeof model);
        REFUSED(5, names[i], "batch", "--model", model, "--input", input, "--output", output);
        model_with(names[i], "/dev/zero", model, sizeof model);
        REFUSED(3, names[i], "batch", "--model", model, "--input", input, "--output", output);
    }
    case_end();
}

/* A message that every process could print is printed only once. */
static void said_once(void)
{
    struct process p;
    case_begin("inspect and version print once, whatever the number of processes");
    process_run(&p, &(struct process_setup){.ranks = 3}, (const char *[]){"version", NULL});
    case_check(p.status == 0 && process_count_lines(p.text[PROCESS_OUT]) == 1, "status %d: %s", p.status,
               p.text[PROCESS_OUT]);
    process_free(&p);
    process_run(&p, &(struct process_setup){.ranks = 3}, (const char *[]){"inspect", "--model", "/no/model", NULL});
    case_check(p.status != 0 && process_count_lines(p.text[PROCESS_ERR]) == 1, "status %d: %s", p.status,
               p.text[PROCESS_ERR]);
    process_free(&p);
    case_end();
}

/* Containers have 64 MiB of /dev/shm: the test mounts one of that size in its own mount namespace. */
static void small_shared_memory(void)
{
    static const char name[] = "a /dev/shm of 64 MB: ranks read alone, or are told of --shm-size";
    char command[1200];
    const char *build = getenv("LOCKSTEP_BINARY");
    if (system("unshare -m mount -t tmpfs -o size=64m tmpfs /dev/shm >/dev/null 2>&1") != 0) {
        case_skip(name, "no mount namespace can be made here");
        return;
    }
    case_begin("%s", name);
    static const char *const way[] = {"auto", "together"};
    for (int i = 0; i < 2; i++) {
        (void)snprintf(
            command, sizeof command,
            "unshare -m sh -c 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec mpirun --oversubscribe -n 4 %s "
            "generate --model %s --prompt Once --max-tokens 3 --load-way %s' >'%s/out' 2>&1",
            build != NULL ? build : "build/cpu/lockstep", models_demo(), way[i], folder);
        int status = system(command);
        size_t bytes = 0;
        char *text = files_read(folder, "out", &bytes);
        case_check(WEXITSTATUS(status) == (i == 0 ? 0 : 6) && text != NULL && strstr(text, "--shm-size") != NULL,
                   "--load-way %s: status %d: %s", way[i], WEXITSTATUS(status), text);
        free(text);
    }
    case_end();
}

/* More positions than the model supports. */
static void too_long(void)
{
    case_begin("--max-model-len beyond the model's context is refused by all commands");
    REFUSED(2, "--max-model-len 100000: the model has 1024 positions", "serve", "--model", models_demo(), "--endpoint",
            "tcp://127.0.0.1:*", "--max-model-len", "100000");
    REFUSED(2, "--max-model-len 100000: the model has 1024 positions", "generate", "--model", models_demo(), "--prompt",
            "Once", "--max-model-len", "100000");
    REFUSED(1, "prompt tokens + --max-tokens 1020 = ", "generate", "--model", models_demo(), "--prompt",
            "Once upon a time there was a fox", "--max-tokens", "1020");
    case_end();
}

int main(void)
{
    files_make_dir(folder);
    small_shared_memory();
    replaced();
    output_pipe();
    model_files();
    said_once();
    too_long();
    files_remove_dir(folder);
    return cases_done();
}
