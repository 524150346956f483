/*
 * command.h - runs the `attn` command, or any program, and keeps what it said.
 *
 *     command_run run = ATTN("gradcheck", "--steps", "abc");
 *     ck_assert_int_eq(run.status, 2);
 *     command_free(&run);
 *
 * The build passes the command's path as ATTN_COMMAND.
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

typedef struct command_run {
    int status; /* exit status, or 128 + signal */
    char *out, *err;
} command_run;

/* A whole stream as a string. */
static inline char *command_slurp(FILE *file) {
    size_t size = 0, room = 4096, got;
    char *text = malloc(room);
    rewind(file);
    while (text && (got = fread(text + size, 1, room - size - 1, file)) > 0) {
        size += got;
        if (room - size < 2) {
            char *more = realloc(text, room *= 2);
            if (!more)
                free(text);
            text = more;
        }
    }
    ck_assert_ptr_nonnull(text);
    text[size] = '\0';
    return text;
}

/* `environment` holds "NAME=value" to set and "NAME" to unset; NULL = nothing of either. stdout
 * goes to the file `out_path` if that is not NULL, and is closed if it is "". */
static inline command_run command_start(const char *const *arguments,
                                        const char *const *environment, const char *out_path) {
    FILE *out = tmpfile(), *err = tmpfile();
    ck_assert(out && err);
    fflush(NULL);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        for (; environment && *environment; environment++)
            if (strchr(*environment, '='))
                putenv((char *)*environment);
            else
                unsetenv(*environment);
        int null = open("/dev/null", O_RDONLY);
        int to = out_path && *out_path ? open(out_path, O_WRONLY) : fileno(out);
        if (null < 0 || to < 0 || dup2(null, 0) < 0 || dup2(to, 1) < 0 || dup2(fileno(err), 2) < 0)
            _exit(126);
        if (out_path && !*out_path)
            close(1);
        execv(arguments[0], (char *const *)arguments);
        _exit(127);
    }
    int result;
    ck_assert_int_eq(waitpid(child, &result, 0), child);
    command_run run = {
        .status = WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result),
        .out = command_slurp(out),
        .err = command_slurp(err),
    };
    fclose(out);
    fclose(err);
    return run;
}

static inline void command_free(command_run *run) {
    free(run->out);
    free(run->err);
}

static inline size_t command_lines(const char *text) {
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

/* A refusal: this status, nothing on stdout, one line on stderr that holds each of the two texts.
 */
static inline void command_refused(command_run run, int status, const char *culprit,
                                   const char *reason) {
    ck_assert_msg(run.status == status && run.out[0] == '\0' && command_lines(run.err) == 1 &&
                      strstr(run.err, culprit) && strstr(run.err, reason),
                  "expected status %d and one line with \"%s\" and \"%s\"; status %d, stdout:\n%s"
                  "stderr:\n%s",
                  status, culprit, reason, run.status, run.out, run.err);
    command_free(&run);
}

/* A directory of its own for a test, removed by command_remove. */
static inline char *command_scratch(void) {
    static char path[] = "/tmp/attn-test-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(path));
    return path;
}

static inline void command_remove(const char *directory) {
    const char *const arguments[] = {"/bin/rm", "-rf", directory, NULL};
    command_run run = command_start(arguments, NULL, NULL);
    ck_assert_int_eq(run.status, 0);
    command_free(&run);
}

static inline bool command_exists(const char *directory, const char *name) {
    char path[512];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return stat(path, &info) == 0 && info.st_size > 0;
}

#define ATTN(...) command_start((const char *const[]){ATTN_COMMAND, __VA_ARGS__, NULL}, NULL, NULL)
/* With settings of the environment, a NULL-terminated array. */
#define ATTN_WITH(environment, ...) \
    command_start((const char *const[]){ATTN_COMMAND, __VA_ARGS__, NULL}, environment, NULL)
/* With stdout in a file, such as /dev/full. */
#define ATTN_INTO(out_path, ...) \
    command_start((const char *const[]){ATTN_COMMAND, __VA_ARGS__, NULL}, NULL, out_path)

#endif
