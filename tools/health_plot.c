#include "health.h"
#include "output.h"
#include "plot.h"

static int write_csv(const char *dir, const health_row *rows, size_t count) {
    tool_file file;
    if (tool_file_open(&file, dir, "health.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream,
            "d_head,scaled,entropy,max_weight,jacobian_norm_mean,jacobian_norm_median,"
            "jacobian_norm_p10,dq_norm_mean,dq_norm_median,dk_norm_mean,dk_norm_median,"
            "sampled_norm_analytic,sampled_norm_numeric,fd_relative_error\n");
    for (size_t i = 0; i < count; i++) {
        const health_row *r = &rows[i];
        fprintf(file.stream, "%zu,%d,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n",
                r->d_head, r->scaled, r->entropy, r->max_weight, r->jacobian_mean,
                r->jacobian_median, r->jacobian_p10, r->dq_mean, r->dq_median, r->dk_mean,
                r->dk_median, r->sampled_norm, r->numeric_norm, r->fd_relative_error);
    }
    return tool_file_commit(&file);
}

/* Columns by number; a row of the other kind becomes NaN, which gnuplot leaves out. */
static const char script[] =
    "scaled(c) = column(2) == 1 ? column(c) : NaN\n"
    "unscaled(c) = column(2) == 0 ? column(c) : NaN\n"
    "set datafile missing NaN\n"
    "set logscale x 2\n"
    "set xrange [0.9:1100]\n"
    "set xlabel 'head width d'\n"
    "set multiplot layout 2,2 title 'Scores of random queries and keys, 64 keys: divided by "
    "sqrt(d) or not'\n"
    "set key bottom left\n"
    "set logscale y\n"
    "set format y '10^{%T}'\n"
    "set title 'norm of the softmax Jacobian, per row'\n"
    "plot 'health.csv' using 1:(scaled(6)) with linespoints ls 1 title 'scaled, median', \\\n"
    "     '' using 1:(scaled(5)) with lines ls 1 dt 2 title 'scaled, mean', \\\n"
    "     '' using 1:(unscaled(6)) with linespoints ls 2 title 'unscaled, median', \\\n"
    "     '' using 1:(unscaled(5)) with lines ls 2 dt 2 title 'unscaled, mean'\n"
    "set title 'norm of the gradient of a query'\n"
    "plot 'health.csv' using 1:(scaled(9)) with linespoints ls 1 title 'scaled, median', \\\n"
    "     '' using 1:(scaled(8)) with lines ls 1 dt 2 title 'scaled, mean', \\\n"
    "     '' using 1:(unscaled(9)) with linespoints ls 2 title 'unscaled, median', \\\n"
    "     '' using 1:(unscaled(8)) with lines ls 2 dt 2 title 'unscaled, mean'\n"
    "unset logscale y\n"
    "set format y '%g'\n"
    "set yrange [0:1.02]\n"
    "set title 'largest weight of a row, median'\n"
    "set key center left\n"
    "plot 'health.csv' using 1:(scaled(4)) with linespoints ls 1 title 'scaled', \\\n"
    "     '' using 1:(unscaled(4)) with linespoints ls 2 title 'unscaled'\n"
    "set yrange [0:4.3]\n"
    "set title 'entropy of the weights, mean (uniform: ln 64 = 4.16)'\n"
    "plot 'health.csv' using 1:(scaled(3)) with linespoints ls 1 title 'scaled', \\\n"
    "     '' using 1:(unscaled(3)) with linespoints ls 2 title 'unscaled'\n"
    "unset multiplot\n";

int health_plot(const char *dir, const health_row *rows, size_t count) {
    int status = write_csv(dir, rows, count);
    return status == TOOL_OK ? tool_plot_sized(dir, "health", script, 1200, 860) : status;
}
