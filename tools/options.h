/*
 * options.h - a thin layer over popt: tables of typed options, checked strictly.
 *
 *     size_t steps = 500;
 *     bool causal = true;
 *     const tool_option options[] = {
 *         {.name = "steps", .kind = TOOL_SIZE, .value = &steps, .help = "training steps",
 *          .has_min = true, .min = 1},
 *         {.name = "causal", .kind = TOOL_FLAG, .value = &causal, .help = "hide later tokens"},
 *         {0}};
 *     const tool_usage usage = {.about = "Trains a toy Transformer.", .options = options};
 *     int status;
 *     if (!tool_options_parse(&usage, argc, argv, NULL, &status))
 *         return status;
 *
 * Every option takes its value as `--name=value` or `--name value`; a flag is switched on by
 * `--name`, off by `--no-name` or `--name=false`. Values set before the call are the defaults that
 * --help shows. Anything wrong costs one line that names option and value, and status 2.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "tool.h"

#include <stdbool.h>

typedef enum tool_kind {
    TOOL_FLAG = 1, /* bool */
    TOOL_SIZE,     /* size_t, digits alone */
    TOOL_SEED,     /* uint64_t, digits alone */
    TOOL_INTEGER,  /* int64_t */
    TOOL_NUMBER,   /* double, finite */
    TOOL_TEXT,     /* const char *, kept until the program ends */
    TOOL_CHOICE    /* int, index into .choices */
} tool_kind;

typedef struct tool_option {
    const char *name; /* NULL ends a table */
    char letter;      /* short form, or 0 */
    tool_kind kind;
    void *value;                /* where it goes; holds the default */
    const char *help;           /* one line, lower case */
    const char *argument;       /* what --help calls the value: FILE, DIR; NULL = by kind */
    const char *shown;          /* the default in words, for --help; NULL = the value itself */
    const char *const *choices; /* ends with NULL */
    bool has_min, has_max;      /* bounds of a number, inclusive */
    double min, max;
    bool *given; /* set if the option was given; may be NULL */
} tool_option;

typedef struct tool_usage {
    const char *about;     /* what the subcommand does, a few lines */
    const char *arguments; /* names of the arguments, "CASE"; NULL = none */
    size_t min_arguments, max_arguments;
    const tool_option *options;
} tool_usage;

/* True: the options are set and arguments[0..] (max_arguments pointers, NULL where absent) are
 * filled. False: return *status (0 after --help). */
bool tool_options_parse(const tool_usage *usage, int argc, char **argv, const char **arguments,
                        int *status);

/* A whole number of digits alone, or a finite number, and nothing after it. */
bool tool_parse_unsigned(const char *text, unsigned long long *value);
bool tool_parse_number(const char *text, double *value);

#endif
