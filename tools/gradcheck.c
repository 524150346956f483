#include "gradcheck.h"

#include "commands.h"
#include "options.h"

static const char about[] =
    "Checks every element of every gradient of the attention layer, in double, against finite\n"
    "differences: all kinds of masks, self- and cross-attention, odd shapes, every variant of\n"
    "attention, each path. With --break one fault goes into a backward of the same layer; the\n"
    "check must then fail, and say where.";

int command_gradcheck(int argc, char **argv) {
    static const char *const kernels[] = {"all", "reference", "fused", NULL};
    enum { ALL, REFERENCE, FUSED };
    int kernel = ALL;
    const char *fault = NULL;
    bool kernel_given = false, all = false;
    check_request r = {.seed = 1};
    const tool_option options[] = {
        {.name = "break",
         .kind = TOOL_TEXT,
         .value = &fault,
         .argument = "NAME",
         .help = "put this fault into the backward; list: print the names"},
        {.name = "all",
         .kind = TOOL_FLAG,
         .value = &all,
         .help = "every two variants that go together, also over long sequences"},
        {.name = "kernel",
         .kind = TOOL_CHOICE,
         .value = &kernel,
         .argument = "PATH",
         .choices = kernels,
         .given = &kernel_given,
         .help = "paths to check"},
        {.name = "every",
         .kind = TOOL_FLAG,
         .value = &r.every,
         .help = "a line for every configuration, not for every mask"},
        {.name = "seed", .kind = TOOL_SEED, .value = &r.seed, .help = "of all random numbers"},
        {.name = "json", .kind = TOOL_FLAG, .value = &r.json, .help = "one line of JSON, no table"},
        {0}};
    const tool_usage usage = {.about = about, .options = options};
    int status;
    if (!tool_options_parse(&usage, argc, argv, NULL, &status))
        return status;
    if (fault && (kernel_given || r.every || all))
        return tool_usage_error("--%s does not go with --break, which has a backward of its own",
                                kernel_given ? "kernel"
                                : all        ? "all"
                                             : "every");
    if (fault)
        return check_broken(fault, r.seed, r.json);
    if (kernel != FUSED)
        r.kernels[r.num_kernels++] = ATTN_KERNEL_REFERENCE;
    if (kernel == FUSED || kernel == ALL)
        r.kernels[r.num_kernels++] = ATTN_KERNEL_FUSED;
    return all ? check_all(&r) : check_table(&r);
}
