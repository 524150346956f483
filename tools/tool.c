#include "tool.h"

#include "progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char name[64] = "attn";

void tool_set_name(const char *command) {
    snprintf(name, sizeof name, "attn %s", command);
}

const char *tool_name(void) {
    return name;
}

/* One message is one line, whatever bytes a file name or an option value brings. */
static void say(const char *format, va_list args) {
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    tool_progress_clear();
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", name, text);
}

void tool_warn(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int tool_fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return TOOL_FAILED;
}

int tool_usage_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return TOOL_USAGE;
}

int tool_stdout_finish(int status) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    clearerr(stdout);
    return tool_fail("cannot write to stdout: %s", errno ? strerror(errno) : "write error");
}

void *tool_alloc(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size ? size : 1);
    if (!memory)
        exit(tool_fail("out of memory: %zu objects of %zu bytes", count, size));
    return memory;
}

double tool_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (double)pages * (double)page : INFINITY;
}

char *tool_format(const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = tool_alloc((size_t)(length < 0 ? 0 : length) + 1, 1);
    vsnprintf(text, (size_t)(length < 0 ? 0 : length) + 1, format, again);
    va_end(again);
    return text;
}

double tool_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
