/*
 * tool.h - what every subcommand of `attn` shares: exit statuses and words on stderr.
 *
 * A subcommand is a function `int command_NAME(int argc, char **argv)` that returns an exit status;
 * commands.h lists them, main.c has the table. Data goes to stdout, words to stderr. Numbers are
 * read and written in the C locale: nothing here calls setlocale.
 */
#ifndef TOOL_H
#define TOOL_H

#include <stddef.h>

enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1,     /* a check, a run or a file */
    TOOL_USAGE = 2,      /* the command line */
    TOOL_SIGNALLED = 128 /* plus the number of the signal, as in a shell: 130 for SIGINT */
};

/* The name before the colon of each message: "attn", then "attn train". */
void tool_set_name(const char *command);
const char *tool_name(void);

/* One line on stderr, "attn train: ...", control characters replaced, also above a progress bar. */
void tool_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and TOOL_FAILED or TOOL_USAGE to return. */
int tool_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
int tool_usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes stdout and passes `status` on; a write error (a full disk, a closed pipe) costs one line
 * and gives TOOL_FAILED. */
int tool_stdout_finish(int status);

/* count·size zeroed bytes, or the end of the program with one line: a command has no way on without
 * memory. */
void *tool_alloc(size_t count, size_t size);
/* Bytes of memory that the machine has; infinite where nobody knows. A system may promise more and
 * kill the program later: ask for no more. */
double tool_memory(void);
/* A formatted string, to be freed. */
char *tool_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Seconds of a clock that only moves forward. */
double tool_seconds(void);

#endif
