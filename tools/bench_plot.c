/* The pictures of `attn bench`: what the T x T matrix costs, and how near the roof we are. */
#include "bench.h"

#include "output.h"
#include "plot.h"
#include "tool.h"

#include <stdio.h>

enum { LONGEST = 65536, SHORTEST = 128, BEYOND_CACHES = 1 << 28 };

static const char time_script[] =
    "set xlabel 'tokens T'\nset ylabel 'forward + backward, ms'\n"
    "set logscale xy\nset xtics 128,2\nset key left top\n"
    "plot 'bench_time.csv' using 1:2 with linespoints ls 2 title 'reference: T x T matrices', \\\n"
    "     'bench_time.csv' using 1:3 with linespoints ls 1 title 'fused: tiles'\n";

static const char memory_script[] =
    "set xlabel 'tokens T'\nset ylabel 'arena of a training step, MB'\n"
    "set logscale xy\nset xtics 128,2\nset key left top\n"
    "plot 'bench_memory.csv' using 1:($2/1e6) with linespoints ls 2 title 'reference', \\\n"
    "     'bench_memory.csv' using 1:($3/1e6) with linespoints ls 1 title 'fused'\n";

static const char roofline_script[] =
    "set xlabel 'useful operations per byte that must move'\nset ylabel 'GFLOP/s'\n"
    "set logscale xy\nset key right bottom\n"
    "stats 'bench_roofs.csv' using 1 nooutput\npeak = STATS_max\n"
    "stats 'bench_roofs.csv' using 2 nooutput\nbandwidth = STATS_max\n"
    "set xrange [1:10000]\nset yrange [10:2*peak]\n"
    "roof(x) = x * bandwidth < peak ? x * bandwidth : peak\n"
    "plot roof(x) with lines ls 3 title 'roof: read bandwidth, then FMA peak', \\\n"
    "     'bench_roofline.csv' using 2:3 with points ls 1 pt 7 title 'forward + backward', \\\n"
    "     'bench_roofline.csv' using 2:3:1 with labels offset 0,-1 notitle\n";

static const bench_shape roofline_shapes[] = {{"toy", 32, 32, 64, 4},
                                              {"char", 16, 256, 384, 6},
                                              {"seed", 8, 512, 512, 8},
                                              {"gpt2", 4, 1024, 768, 12},
                                              {"long8k", 1, 8192, 512, 8}};

/* The model's case at T tokens of one sample. */
static bench_case at_length(const bench_case *model, size_t len, attn_kernel kernel) {
    bench_case c = *model;
    c.shape = (bench_shape){"sweep", 1, len, 512, 8};
    c.kernel = kernel;
    c.budget = model->budget / 4;
    return c;
}

/* One cell of a table: the number, or nothing where there is none. */
static void write_cell(FILE *stream, double value) {
    if (value >= 0)
        fprintf(stream, ",%.6g", value);
    else
        fprintf(stream, ",");
}

/* Milliseconds, or -1 once a path has run past its patience or out of memory. */
static double sweep_time(const bench_case *c, double before) {
    const double patience = 4000; /* doubling T costs up to four times as much */
    size_t bytes;
    bench_result result;
    if (before < 0 || 4 * before > patience || bench_arena_bytes(c, &bytes) != TOOL_OK ||
        2 * (double)bytes > bench_memory_available() || bench_measure(c, &result) != TOOL_OK)
        return -1;
    return result.forward_backward * 1e3;
}

static int write_times(const bench_case *model, const char *dir) {
    tool_file file;
    if (tool_file_open(&file, dir, "bench_time.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "tokens,reference_ms,fused_ms\n");
    double reference = 0, fused = 0;
    for (size_t len = SHORTEST; len <= LONGEST && (reference >= 0 || fused >= 0); len *= 2) {
        fprintf(stderr, "attn bench: timing %zu tokens\n", len);
        const bench_case whole = at_length(model, len, ATTN_KERNEL_REFERENCE);
        const bench_case tiles = at_length(model, len, ATTN_KERNEL_FUSED);
        reference = sweep_time(&whole, reference);
        fused = sweep_time(&tiles, fused);
        fprintf(file.stream, "%zu", len);
        write_cell(file.stream, reference);
        write_cell(file.stream, fused);
        fprintf(file.stream, "\n");
    }
    return tool_file_commit(&file);
}

/* Memory needs no run: it is known beforehand. */
static int write_memory(const bench_case *model, const char *dir) {
    tool_file file;
    if (tool_file_open(&file, dir, "bench_memory.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "tokens,reference_bytes,fused_bytes\n");
    for (size_t len = SHORTEST; len <= LONGEST; len *= 2) {
        size_t reference, fused;
        const bench_case whole = at_length(model, len, ATTN_KERNEL_REFERENCE);
        const bench_case tiles = at_length(model, len, ATTN_KERNEL_FUSED);
        if (bench_arena_bytes(&whole, &reference) != TOOL_OK ||
            bench_arena_bytes(&tiles, &fused) != TOOL_OK) {
            tool_file_discard(&file);
            return TOOL_FAILED;
        }
        fprintf(file.stream, "%zu,%zu,%zu\n", len, reference, fused);
    }
    return tool_file_commit(&file);
}

static int write_roofline(const bench_case *model, const char *dir, double *peak) {
    tool_file file;
    if (tool_file_open(&file, dir, "bench_roofline.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "shape,flops_per_byte,gflops\n");
    *peak = 0;
    for (size_t i = 0; i < sizeof roofline_shapes / sizeof *roofline_shapes; i++) {
        bench_case c = *model;
        bench_result r;
        c.shape = roofline_shapes[i];
        if (bench_measure(&c, &r) != TOOL_OK)
            continue;
        *peak = r.fma_peak > *peak ? r.fma_peak : *peak;
        fprintf(file.stream, "%s,%.6g,%.6g\n", c.shape.name,
                r.forward_backward_flops / r.traffic_bytes,
                r.forward_backward_flops / r.forward_backward * 1e-9);
    }
    return tool_file_commit(&file);
}

static int write_roofs(const char *dir, double peak, double bandwidth) {
    tool_file file;
    if (tool_file_open(&file, dir, "bench_roofs.csv") != TOOL_OK)
        return TOOL_FAILED;
    fprintf(file.stream, "fma_peak_gflops,read_gb_per_s\n%.6g,%.6g\n", peak, bandwidth);
    return tool_file_commit(&file);
}

int bench_plots(const bench_case *model, const char *dir) {
    double peak;
    if (tool_directory_create(dir) != TOOL_OK || write_memory(model, dir) != TOOL_OK ||
        write_times(model, dir) != TOOL_OK || write_roofline(model, dir, &peak) != TOOL_OK ||
        write_roofs(dir, peak, bench_read_bandwidth(model->threads, BEYOND_CACHES)) != TOOL_OK)
        return TOOL_FAILED;
    if (tool_plot(dir, "bench_time", time_script) != TOOL_OK ||
        tool_plot(dir, "bench_memory", memory_script) != TOOL_OK ||
        tool_plot(dir, "bench_roofline", roofline_script) != TOOL_OK)
        return TOOL_FAILED;
    return TOOL_OK;
}
