/* attn eval - one call of the layer, from a file to a file. */
#include "eval.h"
#include "commands.h"
#include "options.h"
#include "output.h"

static const char about[] =
    "Computes one case of attention: inputs and settings come from the safetensors file CASE,\n"
    "output, log-sum-exp, weights and gradients go to another. tests/cases/README.md describes\n"
    "both.";

int command_eval(int argc, char **argv) {
    static const char *const kernels[] = {"auto", "reference", "fused", NULL};
    const char *result = NULL, *path = NULL;
    bool weights = false, kernel_given = false;
    int kernel = ATTN_KERNEL_AUTO;
    const tool_option options[] = {
        {.name = "output",
         .letter = 'o',
         .kind = TOOL_TEXT,
         .value = &result,
         .argument = "RESULT",
         .help = "the file to write"},
        {.name = "weights", .kind = TOOL_FLAG, .value = &weights, .help = "the weights too"},
        {.name = "kernel",
         .kind = TOOL_CHOICE,
         .value = &kernel,
         .choices = kernels,
         .given = &kernel_given,
         .help = "instead of the one that the case asks for"},
        {0}};
    const tool_usage usage = {.about = about,
                              .arguments = "CASE",
                              .min_arguments = 1,
                              .max_arguments = 1,
                              .options = options};
    int status;
    if (!tool_options_parse(&usage, argc, argv, &path, &status))
        return status;
    if (!result)
        return tool_usage_error("-o RESULT is missing: the file to write");
    if (tool_same_file(result, path))
        return tool_usage_error("-o: '%s' is the case itself", result);
    eval_case c;
    status = eval_case_read(&c, path);
    if (status == TOOL_OK) {
        c.weights |= weights;
        if (kernel_given)
            c.kernel = (attn_kernel)kernel;
        status = c.dtype == ATTN_DTYPE_F64 ? eval64_run(&c, result) : eval_run(&c, result);
    }
    eval_case_free(&c);
    return status;
}
