#include "health.h"

#include "commands.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "plot.h"

#include <stdio.h>

enum { WIDTHS = 11, ROWS = 2 * WIDTHS }; /* 1, 2, 4 ... 1024, each with and without the scaling */

static const char about[] =
    "Shows why attention scores are divided by sqrt(d_head): random queries and keys of unit\n"
    "variance, 64 keys, head widths 1 to 1024, with and without the scaling. For each width: the\n"
    "entropy of the weights, the largest weight, the norm of the softmax Jacobian, the norms of "
    "the\n"
    "gradients of queries and keys, and how well numeric differentiation agrees with them. With\n"
    "--plots also what follows: a wide head learns to copy, with and without the scaling.";

static void print_table(const health_row *rows) {
    printf("scaling  d_head  entropy  max      Jacobian norm per row          |dQ| per row      "
           "|dK| per row      numeric\n"
           "                          weight   mean      median    p10        mean     median   "
           "mean     median   error\n");
    for (size_t i = 0; i < ROWS; i++) {
        const health_row *r = &rows[i];
        printf("%-7s  %6zu  %7.4f  %7.5f  %-9.3g %-9.3g %-9.3g  %-8.3g %-8.3g %-8.3g %-8.3g %.1e\n",
               r->scaled ? "yes" : "no", r->d_head, r->entropy, r->max_weight, r->jacobian_mean,
               r->jacobian_median, r->jacobian_p10, r->dq_mean, r->dq_median, r->dk_mean,
               r->dk_median, r->fd_relative_error);
    }
}

static int print_json(const health_row *rows) {
    tool_json json = tool_json_start(stdout);
    tool_json_open(&json, NULL, '[');
    for (size_t i = 0; i < ROWS; i++) {
        const health_row *r = &rows[i];
        tool_json_open(&json, NULL, '{');
        tool_json_count(&json, "d_head", r->d_head);
        tool_json_bool(&json, "scaled", r->scaled);
        tool_json_number(&json, "entropy", r->entropy);
        tool_json_number(&json, "max_weight", r->max_weight);
        tool_json_number(&json, "jacobian_norm_mean", r->jacobian_mean);
        tool_json_number(&json, "jacobian_norm_median", r->jacobian_median);
        tool_json_number(&json, "jacobian_norm_p10", r->jacobian_p10);
        tool_json_number(&json, "dq_norm_mean", r->dq_mean);
        tool_json_number(&json, "dq_norm_median", r->dq_median);
        tool_json_number(&json, "dk_norm_mean", r->dk_mean);
        tool_json_number(&json, "dk_norm_median", r->dk_median);
        tool_json_number(&json, "sampled_norm_analytic", r->sampled_norm);
        tool_json_number(&json, "sampled_norm_numeric", r->numeric_norm);
        tool_json_number(&json, "fd_relative_error", r->fd_relative_error);
        tool_json_close(&json, '}');
    }
    tool_json_close(&json, ']');
    return tool_json_finish(&json, TOOL_OK);
}

static int learn_to_copy(const char *plots, uint64_t seed, bool quiet) {
    health_copy_result copy;
    int status = health_copy(&copy, plots, seed);
    if (status == TOOL_OK && !quiet)
        printf("\ncopy task, one head of width %zu, %zu steps: loss %.5f and accuracy %.1f %% with "
               "the scaling, %.5f and %.1f %% without\n",
               copy.d_head, copy.steps, copy.loss[true], 100 * copy.accuracy[true],
               copy.loss[false], 100 * copy.accuracy[false]);
    return status;
}

int command_health(int argc, char **argv) {
    size_t count = 4096;
    uint64_t seed = 1;
    const char *plots = NULL;
    bool json = false;
    const tool_option options[] = {
        {.name = "rows",
         .kind = TOOL_SIZE,
         .value = &count,
         .help = "rows to measure at each width, in batches of 64",
         .has_min = true,
         .min = 1,
         .has_max = true,
         .max = 1 << 24},
        {.name = "seed", .kind = TOOL_SEED, .value = &seed, .help = "of queries, keys, gradients"},
        {.name = "plots",
         .kind = TOOL_TEXT,
         .value = &plots,
         .argument = "DIR",
         .help = "health.png, and copy.png: the copy task learnt with and without; their data"},
        {.name = "json", .kind = TOOL_FLAG, .value = &json, .help = "one line of JSON, no table"},
        {0}};
    const tool_usage usage = {.about = about, .options = options};
    int status;
    if (!tool_options_parse(&usage, argc, argv, NULL, &status))
        return status;
    if (plots && tool_directory_create(plots) != TOOL_OK)
        return TOOL_FAILED;

    health_row rows[ROWS];
    for (size_t i = 0; i < ROWS && status == TOOL_OK; i++)
        status = health_measure(&rows[i], (size_t)1 << i % WIDTHS, i < WIDTHS, count, seed);
    if (status != TOOL_OK)
        return status;
    if (json)
        status = print_json(rows);
    else
        print_table(rows);
    if (plots && status == TOOL_OK)
        status = health_plot(plots, rows, ROWS);
    if (plots && status == TOOL_OK)
        status = learn_to_copy(plots, seed, json);
    return status;
}
