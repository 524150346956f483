#include "plot.h"

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The terminal is always a file: neither DISPLAY nor GNUTERM matters. Colours: Okabe and Ito. */
static const char preface[] =
    "if (exists('ARG1') && strlen(ARG1) > 0) { cd ARG1 }\n"
    "if (strstrt(GPVAL_TERMINALS, 'pngcairo') > 0) {\n"
    "    set terminal pngcairo size %zu,%zu font 'Sans,12' background rgb 'white'\n"
    "} else {\n"
    "    set terminal png size %zu,%zu\n"
    "}\n"
    "set output '%s.png'\n"
    "set encoding utf8\n"
    "set datafile separator ','\n"
    "set datafile columnheaders\n"
    "set style line 1 lc rgb '#0072b2' lw 2 pt 7\n"
    "set style line 2 lc rgb '#d55e00' lw 2 pt 5\n"
    "set style line 3 lc rgb '#009e73' lw 2 pt 9\n"
    "set style line 4 lc rgb '#cc79a7' lw 2 pt 13\n"
    "set style line 5 lc rgb '#e69f00' lw 2 pt 11\n"
    "set style line 6 lc rgb '#56b4e9' lw 2 pt 6\n"
    "set border 3 lc rgb '#404040'\n"
    "set tics nomirror\n"
    "set grid lc rgb '#e0e0e0' lw 1\n"
    "set key top right noopaque\n"
    "set palette defined (0 '#ffffff', 0.25 '#c6dbef', 0.5 '#6baed6', 0.75 '#2171b5', "
    "1 '#08306b')\n";

static int write_script(const char *dir, const char *name, const char *script, size_t width,
                        size_t height) {
    char *file_name = tool_format("%s.gp", name);
    tool_file file;
    int status = tool_file_open(&file, dir, file_name);
    free(file_name);
    if (status != TOOL_OK)
        return status;
    fprintf(file.stream, preface, width, height, width, height, name);
    fputs(script, file.stream);
    return tool_file_commit(&file);
}

/* The environment without what could make gnuplot open a window. To be freed (the array alone). */
static char **quiet_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **copy = tool_alloc(count + 1, sizeof *copy);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "GNUTERM=", 8) != 0 && strncmp(environ[i], "DISPLAY=", 8) != 0 &&
            strncmp(environ[i], "WAYLAND_DISPLAY=", 16) != 0)
            copy[kept++] = environ[i];
    return copy;
}

/* Starts gnuplot with its words going to `words`; 0 or an errno. */
static int start(pid_t *child, int words, char **arguments) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, words, 1);
    posix_spawn_file_actions_adddup2(&actions, words, 2);
    posix_spawnattr_init(&attributes);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    char **environment = quiet_environment();
    int error = posix_spawnp(child, arguments[0], &actions, &attributes, arguments, environment);
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

double tool_plot_patience = 60;

/* Whether there is something to read, or the end, before the deadline. */
static bool wait_until(int fd, double deadline) {
    for (;;) {
        double left = deadline - tool_seconds();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int found = left > 0 ? poll(&ready, 1, (int)(1000 * left) + 1) : 0;
        if (found >= 0 || errno != EINTR)
            return found != 0;
    }
}

/* Reads to the end; keeps the last line that says something (gnuplot's reason comes last). False if
 * the end does not come. */
static bool read_words(int fd, char *line, size_t size) {
    const double deadline = tool_seconds() + tool_plot_patience;
    char byte;
    size_t length = 0;
    bool fresh = false, in_time;
    ssize_t got = 0;
    while ((in_time = wait_until(fd, deadline)) &&
           ((got = read(fd, &byte, 1)) == 1 || (got < 0 && errno == EINTR))) {
        if (got < 0)
            continue;
        if (byte == '\n') {
            fresh = true;
        } else if (byte != ' ' || (length > 0 && !fresh)) {
            if (fresh)
                length = 0;
            fresh = false;
            if (length + 1 < size)
                line[length++] = byte;
        }
    }
    line[length] = '\0';
    return in_time;
}

/* One line a run of the command, not one a picture. */
static void lament(const char *dir, const char *name, const char *reason) {
    static bool said;
    if (!said)
        tool_warn("%s: no picture; data and script are kept: %s%s%s.gp", reason, dir,
                  dir[0] && dir[strlen(dir) - 1] == '/' ? "" : "/", name);
    said = true;
}

static void run_gnuplot(const char *dir, const char *name) {
    char *script_name = tool_format("%s.gp", name), *script = tool_path(dir, script_name);
    char *png_name = tool_format("%s.png", name), *png = tool_path(dir, png_name);
    char words[200] = "", reason[300];
    int ends[2], error, result = 0;
    bool ended = true;
    pid_t child;
    unlink(png); /* a failure must not leave an old picture that looks like the new one */
    if (pipe(ends) != 0) {
        error = errno;
    } else {
        fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        fcntl(ends[1], F_SETFD, FD_CLOEXEC);
        char *arguments[] = {"gnuplot", "-d", "-c", script, (char *)dir, NULL};
        error = start(&child, ends[1], arguments);
        close(ends[1]);
        if (error == 0) {
            ended = read_words(ends[0], words, sizeof words);
            if (!ended)
                kill(child, SIGKILL);
            while (waitpid(child, &result, 0) < 0 && errno == EINTR)
                continue;
        }
        close(ends[0]);
    }
    if (error == ENOENT || (error == 0 && WIFEXITED(result) && WEXITSTATUS(result) == 127)) {
        lament(dir, name, "gnuplot is not installed");
    } else if (error != 0) {
        snprintf(reason, sizeof reason, "gnuplot does not start (%s)", strerror(error));
        lament(dir, name, reason);
    } else if (result != 0 || access(png, F_OK) != 0) {
        if (!ended)
            snprintf(reason, sizeof reason, "gnuplot does not end (%g s)", tool_plot_patience);
        else if (WIFSIGNALED(result))
            snprintf(reason, sizeof reason, "gnuplot died of signal %d", WTERMSIG(result));
        else
            snprintf(reason, sizeof reason, "gnuplot failed with status %d%s%s",
                     WEXITSTATUS(result), words[0] ? ", " : "", words);
        unlink(png);
        lament(dir, name, reason);
    }
    free(script_name);
    free(script);
    free(png_name);
    free(png);
}

int tool_plot_sized(const char *dir, const char *name, const char *script, size_t width,
                    size_t height) {
    if (write_script(dir, name, script, width, height) != TOOL_OK)
        return TOOL_FAILED;
    run_gnuplot(dir, name);
    return TOOL_OK;
}

int tool_plot(const char *dir, const char *name, const char *script) {
    return tool_plot_sized(dir, name, script, 1000, 620);
}
