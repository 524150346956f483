#include "options.h"

#include <errno.h>
#include <math.h>
#include <popt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* popt's return values: option i is SET + i, a flag switched off is OFF + i. */
enum { HELP = 1, SET = 1000, OFF = 2000 };

/* Strings that options point to, kept until the program ends. */
static struct kept {
    struct kept *next;
    char *text;
} * kept_strings;

static const char *keep(char *text) {
    struct kept *link = tool_alloc(1, sizeof *link);
    *link = (struct kept){kept_strings, text};
    kept_strings = link;
    return text;
}

static bool only_digits(const char *text) {
    return *text && strspn(text, "0123456789") == strlen(text);
}

bool tool_parse_unsigned(const char *text, unsigned long long *value) {
    if (!only_digits(text))
        return false;
    errno = 0;
    *value = strtoull(text, NULL, 10);
    return errno == 0;
}

bool tool_parse_number(const char *text, double *value) {
    /* strtod also takes blanks, hexadecimal, inf and nan. */
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    char *end;
    *value = strtod(text, &end);
    return *end == '\0' && isfinite(*value);
}

static bool parse_integer(const char *text, int64_t *value) {
    if (!only_digits(text + (*text == '-' || *text == '+')))
        return false;
    errno = 0;
    *value = strtoll(text, NULL, 10);
    return errno == 0;
}

static int complain(const tool_option *o, const char *text, const char *what) {
    return tool_usage_error("--%s: '%s' %s", o->name, text, what);
}

static int check_range(const tool_option *o, const char *text, double value) {
    char what[64];
    if (o->has_min && value < o->min) {
        snprintf(what, sizeof what, "is below %g", o->min);
        return complain(o, text, what);
    }
    if (o->has_max && value > o->max) {
        snprintf(what, sizeof what, "is above %g", o->max);
        return complain(o, text, what);
    }
    return TOOL_OK;
}

static int set_unsigned(const tool_option *o, const char *text) {
    unsigned long long value;
    if (!tool_parse_unsigned(text, &value))
        return complain(o, text,
                        only_digits(text) ? "is too large" : "is not a whole number from 0 up");
    if (o->kind == TOOL_SIZE && value > SIZE_MAX)
        return complain(o, text, "is too large");
    int status = check_range(o, text, (double)value);
    if (status != TOOL_OK)
        return status;
    if (o->kind == TOOL_SIZE)
        *(size_t *)o->value = (size_t)value;
    else
        *(uint64_t *)o->value = value;
    return TOOL_OK;
}

static int set_integer(const tool_option *o, const char *text) {
    int64_t value;
    if (!parse_integer(text, &value))
        return complain(o, text, "is not a whole number of 64 bits");
    int status = check_range(o, text, (double)value);
    if (status == TOOL_OK)
        *(int64_t *)o->value = value;
    return status;
}

static int set_number(const tool_option *o, const char *text) {
    double value;
    if (!tool_parse_number(text, &value))
        return complain(o, text, "is not a finite number");
    int status = check_range(o, text, value);
    if (status == TOOL_OK)
        *(double *)o->value = value;
    return status;
}

static void join_choices(char *list, size_t size, const char *const *choices) {
    size_t at = 0;
    list[0] = '\0';
    for (; *choices && at < size; choices++)
        at += (size_t)snprintf(list + at, size - at, "%s%s", at ? ", " : "", *choices);
}

static int set_choice(const tool_option *o, const char *text) {
    for (int i = 0; o->choices[i]; i++)
        if (strcmp(text, o->choices[i]) == 0) {
            *(int *)o->value = i;
            return TOOL_OK;
        }
    char list[256], what[300];
    join_choices(list, sizeof list, o->choices);
    snprintf(what, sizeof what, "is none of %s", list);
    return complain(o, text, what);
}

/* Takes over `text`. */
static int set_value(const tool_option *o, char *text) {
    int status = TOOL_OK;
    switch (o->kind) {
    case TOOL_FLAG:
        *(bool *)o->value = true;
        break;
    case TOOL_SIZE:
    case TOOL_SEED:
        status = set_unsigned(o, text);
        break;
    case TOOL_INTEGER:
        status = set_integer(o, text);
        break;
    case TOOL_NUMBER:
        status = set_number(o, text);
        break;
    case TOOL_CHOICE:
        status = set_choice(o, text);
        break;
    case TOOL_TEXT:
        *(const char **)o->value = keep(text);
        text = NULL;
        break;
    }
    free(text);
    if (o->given)
        *o->given = true;
    return status;
}

/* "--name=value" of a flag becomes "--name" or "--no-name": popt has no such flags. NULL = neither
 * true nor false. */
static const char *flag_switch(const char *value) {
    static const char *const on[] = {"true", "yes", "on", "1"};
    static const char *const off[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcmp(value, on[i]) == 0)
            return "";
        if (strcmp(value, off[i]) == 0)
            return "no-";
    }
    return NULL;
}

/* The option that a long argument "--name..." names, or NULL. */
static const tool_option *find_long(const tool_option *options, const char *argument) {
    if (strncmp(argument, "--", 2) != 0)
        return NULL;
    size_t length = strcspn(argument + 2, "=");
    for (const tool_option *o = options; o->name; o++)
        if (strlen(o->name) == length && strncmp(o->name, argument + 2, length) == 0)
            return o;
    return NULL;
}

static const tool_option *find_letter(const tool_option *options, const char *argument) {
    if (argument[0] != '-' || !argument[1] || argument[2])
        return NULL;
    for (const tool_option *o = options; o->name; o++)
        if (o->letter && o->letter == argument[1])
            return o;
    return NULL;
}

/* A copy of argv in which no flag has a value. NULL after a complaint. */
static const char **rewrite_flags(const tool_option *options, int argc, char **argv) {
    const char **copy = tool_alloc((size_t)argc + 1, sizeof *copy);
    bool is_value = false;
    for (int i = 0; i < argc; i++) {
        copy[i] = argv[i];
        if (is_value) {
            is_value = false;
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            memcpy(copy + i, argv + i, (size_t)(argc - i) * sizeof *copy);
            break;
        }
        const tool_option *o = find_long(options, argv[i]);
        const char *equals = o ? strchr(argv[i], '=') : NULL;
        if (!o)
            o = find_letter(options, argv[i]);
        is_value = o && o->kind != TOOL_FLAG && !equals;
        if (!o || o->kind != TOOL_FLAG || !equals)
            continue;
        const char *prefix = flag_switch(equals + 1);
        if (!prefix) {
            complain(o, equals + 1, "is neither true nor false");
            free(copy);
            return NULL;
        }
        copy[i] = keep(tool_format("--%s%s", prefix, o->name));
    }
    return copy;
}

/* popt's table: each option, the negation of each flag, --help, and the end. */
static struct poptOption *popt_table(const tool_option *options) {
    size_t count = 0;
    while (options[count].name)
        count++;
    struct poptOption *table = tool_alloc(2 * count + 2, sizeof *table), *entry = table;
    for (size_t i = 0; i < count; i++) {
        const tool_option *o = &options[i];
        bool flag = o->kind == TOOL_FLAG;
        *entry++ = (struct poptOption){.longName = o->name,
                                       .shortName = o->letter,
                                       .argInfo = flag ? POPT_ARG_NONE : POPT_ARG_STRING,
                                       .val = SET + (int)i};
        if (flag)
            *entry++ = (struct poptOption){.longName = keep(tool_format("no-%s", o->name)),
                                           .argInfo = POPT_ARG_NONE,
                                           .val = OFF + (int)i};
    }
    *entry = (struct poptOption){
        .longName = "help", .shortName = 'h', .argInfo = POPT_ARG_NONE, .val = HELP};
    return table;
}

static void print_default(const tool_option *o) {
    if (o->shown) {
        printf(" (%s)", o->shown);
        return;
    }
    switch (o->kind) {
    case TOOL_FLAG:
        if (*(bool *)o->value)
            printf(" (on; --no-%s)", o->name);
        break;
    case TOOL_SIZE:
        printf(" (%zu)", *(size_t *)o->value);
        break;
    case TOOL_SEED:
        printf(" (%llu)", (unsigned long long)*(uint64_t *)o->value);
        break;
    case TOOL_INTEGER:
        printf(" (%lld)", (long long)*(int64_t *)o->value);
        break;
    case TOOL_NUMBER:
        printf(" (%g)", *(double *)o->value);
        break;
    case TOOL_CHOICE:
        printf(" (%s)", o->choices[*(int *)o->value]);
        break;
    case TOOL_TEXT:
        if (*(const char **)o->value)
            printf(" (%s)", *(const char **)o->value);
        break;
    }
}

static void print_option(const tool_option *o) {
    static const char *const arguments[] = {"", "", "N", "N", "N", "X", "TEXT", "CHOICE"};
    const char *argument = o->argument ? o->argument : arguments[o->kind];
    char left[80], letter[8] = "    ";
    if (o->letter)
        snprintf(letter, sizeof letter, "-%c, ", o->letter);
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, o->name, o->kind == TOOL_FLAG ? "" : "=",
             o->kind == TOOL_FLAG ? "" : argument);
    printf("%-28s %s", left, o->help ? o->help : "");
    if (o->kind == TOOL_CHOICE) {
        char list[256];
        join_choices(list, sizeof list, o->choices);
        printf(": %s", list);
    }
    print_default(o);
    putchar('\n');
}

static void print_help(const tool_usage *usage) {
    printf("Usage: %s [OPTION...]%s%s\n\n%s\n\nOptions (defaults in parentheses):\n", tool_name(),
           usage->arguments ? " " : "", usage->arguments ? usage->arguments : "", usage->about);
    for (const tool_option *o = usage->options; o->name; o++)
        print_option(o);
    print_option(&(tool_option){.name = "help",
                                .letter = 'h',
                                .kind = TOOL_FLAG,
                                .value = &(bool){0},
                                .help = "this text"});
}

static int complain_popt(poptContext context, int code) {
    const char *option = poptBadOption(context, 0);
    switch (code) {
    case POPT_ERROR_BADOPT:
        return tool_usage_error("unknown option %s (see %s --help)", option, tool_name());
    case POPT_ERROR_NOARG:
        return tool_usage_error("%s: the value is missing", option);
    case POPT_ERROR_UNWANTEDARG:
        return tool_usage_error("%s: takes no value", option);
    default:
        return tool_usage_error("%s: %s", option, poptStrerror(code));
    }
}

static int take_arguments(const tool_usage *usage, poptContext context, const char **arguments) {
    const char **rest = poptGetArgs(context);
    size_t count = 0;
    while (rest && rest[count])
        count++;
    if (count > usage->max_arguments)
        return tool_usage_error("surplus argument '%s' (see %s --help)", rest[usage->max_arguments],
                                tool_name());
    if (count < usage->min_arguments)
        return tool_usage_error("argument missing: %s (see %s --help)", usage->arguments,
                                tool_name());
    for (size_t i = 0; i < usage->max_arguments; i++)
        arguments[i] = i < count ? keep(tool_format("%s", rest[i])) : NULL;
    return TOOL_OK;
}

/* The first thing that is wrong decides; --help wins over what follows it. */
static int apply(const tool_usage *usage, poptContext context, bool *help) {
    int code;
    while ((code = poptGetNextOpt(context)) > 0) {
        int status = TOOL_OK;
        if (code == HELP) {
            *help = true;
            return TOOL_OK;
        }
        if (code >= OFF) {
            *(bool *)usage->options[code - OFF].value = false;
            if (usage->options[code - OFF].given)
                *usage->options[code - OFF].given = true;
        } else {
            status = set_value(&usage->options[code - SET], poptGetOptArg(context));
        }
        if (status != TOOL_OK)
            return status;
    }
    return code < -1 ? complain_popt(context, code) : TOOL_OK;
}

bool tool_options_parse(const tool_usage *usage, int argc, char **argv, const char **arguments,
                        int *status) {
    const char **rewritten = rewrite_flags(usage->options, argc, argv);
    if (!rewritten) {
        *status = TOOL_USAGE;
        return false;
    }
    struct poptOption *table = popt_table(usage->options);
    poptContext context = poptGetContext(NULL, argc, rewritten, table, 0);
    bool help = false;
    *status = apply(usage, context, &help);
    if (*status == TOOL_OK && !help)
        *status = take_arguments(usage, context, arguments);
    poptFreeContext(context);
    free(table);
    free(rewritten);
    if (help) {
        print_help(usage);
        *status = tool_stdout_finish(TOOL_OK);
    }
    return *status == TOOL_OK && !help;
}
