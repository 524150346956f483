/* attn - the command: picks a subcommand and sees to what all of them need. */
#include "commands.h"
#include "tool.h"

#include <attn/isa.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name, *help;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
    {"bench", "time and memory of attention, against the machine's peak", command_bench},
    {"gradcheck", "checks every gradient of the layer; --break shows that the check can fail",
     command_gradcheck},
    {"eval", "computes one case of attention, from a file to a file", command_eval},
    {"health", "why scores are divided by sqrt(d_head): softmax and its gradient by head width",
     command_health},
    {"train", "train a toy Transformer on copying, reversing or text", command_train},
    {NULL, NULL, NULL},
};

static const command *find(const char *name) {
    for (const command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int print_help(void) {
    printf("Usage: attn COMMAND [OPTION...] [ARGUMENT...]\n\n"
           "Multi-head attention that can be trained.\n\nCommands:\n");
    for (const command *c = commands; c->name; c++)
        printf("  %-12s %s\n", c->name, c->help);
    printf("\n"
           "  attn COMMAND --help   the options of a command (also: attn help COMMAND)\n"
           "  attn --version        version, instruction set, matrix products\n\n"
           "Exit status: 0 success, 1 a failed check or run, 2 a wrong command line.\n"
           "ATTN_ISA=baseline|avx2|avx512 lowers the instruction set.\n");
    return tool_stdout_finish(TOOL_OK);
}

static int print_version(void) {
    printf("attn %s\ninstruction set: %s\nmatrix products: %s\n", attn_version(),
           attn_isa_name(attn_isa_current()), attn_gemm_name());
    return tool_stdout_finish(TOOL_OK);
}

static int unknown(const char *name) {
    return tool_usage_error("unknown command '%s' (see attn --help)", name);
}

static int help_on(int argc, char **argv) {
    if (argc < 3)
        return print_help();
    if (argc > 3)
        return tool_usage_error("surplus argument '%s' (see attn --help)", argv[3]);
    const command *c = find(argv[2]);
    if (!c)
        return unknown(argv[2]);
    tool_set_name(c->name);
    char *arguments[] = {argv[2], "--help", NULL};
    return c->run(2, arguments);
}

/* Without these a file opened later could become stdout. Writes to the stand-in fail and are seen.
 */
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", O_RDONLY);
}

int main(int argc, char **argv) {
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* a reader that left is a write error, not a death */
    if (argc < 2)
        return tool_usage_error("a command is missing (see attn --help)");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help_on(argc, argv);
    if (attn_isa_select(NULL) != ATTN_OK)
        return tool_usage_error("%s", attn_error_message());
    if (strcmp(argv[1], "--version") == 0)
        return argc > 2 ? tool_usage_error("surplus argument '%s' (see attn --help)", argv[2])
                        : print_version();
    const command *c = find(argv[1]);
    if (!c)
        return unknown(argv[1]);
    tool_set_name(c->name);
    return tool_stdout_finish(c->run(argc - 1, argv + 1));
}
