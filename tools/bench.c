/* attn bench - how fast and how large attention is on this machine, against its own peak. */
#include "bench.h"

#include "commands.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "tool.h"

#include <attn/isa.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const bench_shape shapes[] = {
    {"toy", 32, 32, 64, 4},     {"char", 16, 256, 384, 6},   {"seed", 8, 512, 512, 8},
    {"gpt2", 4, 1024, 768, 12}, {"long8k", 1, 8192, 512, 8}, {"long32k", 1, 32768, 512, 8},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static const char *const kernel_names[] = {"auto", "reference", "fused", NULL};

int bench64_run(const bench_case *c, bench_result *result);

int bench_measure(const bench_case *c, bench_result *result) {
    return c->in_double ? bench64_run(c, result) : bench_run(c, result);
}

/* Linux says what can be had without swapping; elsewhere all that there is must do. */
double bench_memory_available(void) {
    double kilobytes = -1;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lf", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return kilobytes >= 0 ? kilobytes * 1024
                          : (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

typedef struct reader {
    const double *from;
    size_t count;
    double sum;
} reader;

static void *read_all(void *argument) {
    reader *r = argument;
    double sums[8] = {0};
    for (size_t i = 0; i + 8 <= r->count; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += r->from[i + j];
    for (size_t j = 0; j < 8; j++)
        r->sum += sums[j];
    return NULL;
}

double bench_read_bandwidth(size_t threads) {
    enum { MOST = 64, RUNS = 5 };
    const size_t total = (size_t)1 << 25; /* 256 MiB of doubles: beyond the caches */
    threads = threads < MOST ? threads : MOST;
    double *block = tool_alloc(total, sizeof *block);
    for (size_t i = 0; i < total; i++)
        block[i] = 1;
    double best = 0;
    for (size_t run = 0; run < RUNS; run++) {
        pthread_t ids[MOST];
        reader readers[MOST];
        size_t started = 0;
        const double start = tool_seconds();
        for (; started < threads; started++) {
            readers[started] = (reader){block + started * (total / threads), total / threads, 0};
            if (pthread_create(&ids[started], NULL, read_all, &readers[started]) != 0)
                break;
        }
        for (size_t i = 0; i < started; i++)
            pthread_join(ids[i], NULL);
        const double bytes = (double)started * (double)(total / threads) * sizeof *block;
        const double rate = bytes / (tool_seconds() - start) * 1e-9;
        best = rate > best ? rate : best;
    }
    free(block);
    return best;
}

/* As many threads as OpenMP would start. */
static size_t default_threads(void) {
    const char *wanted = getenv("OMP_NUM_THREADS");
    unsigned long long threads;
    if (wanted && tool_parse_unsigned(wanted, &threads) && threads > 0 && threads <= 1024)
        return (size_t)threads;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

static const char *case_kind(const bench_case *c) {
    return c->layer ? "layer" : "core";
}

/* AUTO takes the fused path, as nobody asks for weights here. */
static const char *case_kernel(const bench_case *c) {
    return kernel_names[c->kernel == ATTN_KERNEL_AUTO ? ATTN_KERNEL_FUSED : c->kernel];
}

static double gflops(double flops, double seconds) {
    return flops / seconds * 1e-9;
}

static void print_heading(const bench_case *c) {
    printf("%s, %s, %zu thread%s, matrix products: %s\n\n", c->in_double ? "double" : "float",
           attn_isa_name(attn_isa_current()), c->threads, c->threads == 1 ? "" : "s",
           attn_gemm_name());
    printf("                             kernel      forward               forward+backward      "
           "      peak          arena\n"
           "what   shape         causal                  ms GFLOP/s    %%         ms GFLOP/s    %% "
           "  GFLOP/s          bytes\n");
}

static void print_row(const bench_case *c, const bench_result *r) {
    const double forward = gflops(r->forward_flops, r->forward);
    const double both = gflops(r->forward_backward_flops, r->forward_backward);
    printf("%-6s %-13s %-6s %-10s %9.3f %7.1f %4.0f  %9.3f %7.1f %4.0f %9.1f %14zu\n", case_kind(c),
           c->shape.name, c->causal ? "yes" : "no", case_kernel(c), r->forward * 1e3, forward,
           100 * forward / r->fma_peak, r->forward_backward * 1e3, both, 100 * both / r->fma_peak,
           r->fma_peak, r->arena_bytes);
    fflush(stdout);
}

static void json_case(tool_json *json, const bench_case *c, const bench_result *r) {
    const double forward = gflops(r->forward_flops, r->forward);
    const double both = gflops(r->forward_backward_flops, r->forward_backward);
    tool_json_open(json, NULL, '{');
    tool_json_string(json, "what", case_kind(c));
    tool_json_string(json, "shape", c->shape.name);
    tool_json_string(json, "kernel", case_kernel(c));
    tool_json_bool(json, "causal", c->causal);
    tool_json_count(json, "threads", c->threads);
    tool_json_string(json, "precision", c->in_double ? "double" : "float");
    tool_json_string(json, "isa", attn_isa_name(attn_isa_current()));
    tool_json_number(json, "forward_ms", r->forward * 1e3);
    tool_json_number(json, "forward_backward_ms", r->forward_backward * 1e3);
    tool_json_number(json, "forward_gflops", forward);
    tool_json_number(json, "forward_backward_gflops", both);
    tool_json_number(json, "fma_peak_gflops", r->fma_peak);
    tool_json_number(json, "forward_fraction", forward / r->fma_peak);
    tool_json_number(json, "forward_backward_fraction", both / r->fma_peak);
    tool_json_count(json, "arena_bytes", r->arena_bytes);
    tool_json_close(json, '}');
}

static int run_one(const bench_case *c, bool in_json) {
    bench_result result;
    if (bench_measure(c, &result) != TOOL_OK)
        return TOOL_FAILED;
    if (in_json) {
        tool_json json = tool_json_start(stdout);
        json_case(&json, c, &result);
        return tool_json_finish(&json, TOOL_OK);
    }
    print_heading(c);
    print_row(c, &result);
    return TOOL_OK;
}

/* The case of row i of the whole table; false past its end. */
static bool table_case(bench_case *c, size_t i) {
    if (i >= 4 * SHAPES)
        return false;
    c->layer = i < 2 * SHAPES;
    c->shape = shapes[i / 2 % SHAPES];
    c->causal = i % 2 == 0;
    return true;
}

/* Every shape, layer and core, causal and full. A shape that does not fit costs its row. */
static int run_all(bench_case c, bool in_json) {
    int status = TOOL_OK;
    tool_json json = tool_json_start(stdout);
    if (in_json)
        tool_json_open(&json, NULL, '[');
    else
        print_heading(&c);
    for (size_t i = 0; table_case(&c, i); i++) {
        bench_result result;
        if (bench_measure(&c, &result) != TOOL_OK)
            status = TOOL_FAILED;
        else if (in_json)
            json_case(&json, &c, &result);
        else
            print_row(&c, &result);
    }
    if (!in_json)
        return status;
    tool_json_close(&json, ']');
    return tool_json_finish(&json, status);
}

/* Four positive whole numbers, separated by commas. */
static bool parse_sizes(const char *text, size_t sizes[4]) {
    char copy[128];
    if (strlen(text) >= sizeof copy)
        return false;
    strcpy(copy, text);
    char *part = copy;
    for (size_t i = 0; i < 4; i++) {
        char *comma = strchr(part, ',');
        if ((i < 3) != (comma != NULL))
            return false;
        if (comma)
            *comma = '\0';
        unsigned long long value;
        if (!tool_parse_unsigned(part, &value) || value == 0 || value > 1ULL << 40)
            return false;
        sizes[i] = (size_t)value;
        part = comma ? comma + 1 : part;
    }
    return true;
}

static int parse_shape(bench_shape *shape, const char *text) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(text, shapes[i].name) == 0) {
            *shape = shapes[i];
            return TOOL_OK;
        }
    size_t sizes[4];
    if (!parse_sizes(text, sizes))
        return tool_usage_error(
            "--shape: '%s' is neither B,T,D,H nor one of toy, char, seed, gpt2, "
            "long8k, long32k",
            text);
    if (sizes[2] % sizes[3] != 0)
        return tool_usage_error("--shape: %zu heads do not divide the width %zu in '%s'", sizes[3],
                                sizes[2], text);
    *shape = (bench_shape){text, sizes[0], sizes[1], sizes[2], sizes[3]};
    return TOOL_OK;
}

typedef struct bench_options {
    const char *shape, *plot_dir;
    bool causal, in_json, all, in_double;
    int kernel;
    size_t threads;
    double budget;
} bench_options;

static int run_options(const bench_options *o, const char *what) {
    bench_case c = {.causal = o->causal,
                    .in_double = o->in_double,
                    .kernel = (attn_kernel)o->kernel,
                    .threads = o->threads,
                    .budget = o->budget};
    if (o->all && (what || o->shape))
        return tool_usage_error("--all measures everything: no '%s' beside it",
                                what ? what : "--shape");
    if (!o->all && !o->plot_dir && !what)
        return tool_usage_error("what to measure is missing: layer, core, --all or --plot DIR");
    if (o->in_json && !o->all && !what)
        return tool_usage_error("--json needs numbers: layer, core or --all beside --plot");
    if (what && strcmp(what, "layer") != 0 && strcmp(what, "core") != 0)
        return tool_usage_error("'%s' is neither layer nor core", what);
    c.layer = !what || strcmp(what, "layer") == 0; /* --plot alone draws the layer */
    if (parse_shape(&c.shape, o->shape ? o->shape : "gpt2") != TOOL_OK)
        return TOOL_USAGE;
    int status = o->plot_dir ? tool_directory_create(o->plot_dir) : TOOL_OK;
    if (status != TOOL_OK)
        return status;
    if (o->all)
        status = run_all(c, o->in_json);
    else if (what)
        status = run_one(&c, o->in_json);
    if (o->plot_dir && status == TOOL_OK)
        status = bench_plots(&c, o->plot_dir);
    return status;
}

int command_bench(int argc, char **argv) {
    bench_options o = {.threads = default_threads(), .budget = 2};
    const tool_option options[] = {
        {.name = "shape",
         .kind = TOOL_TEXT,
         .value = &o.shape,
         .argument = "NAME|B,T,D,H",
         .help = "toy, char, seed, gpt2 (default), long8k, long32k, or four sizes"},
        {.name = "causal", .kind = TOOL_FLAG, .value = &o.causal, .help = "hide later tokens"},
        {.name = "kernel",
         .kind = TOOL_CHOICE,
         .value = &o.kernel,
         .choices = kernel_names,
         .help = "the path through the core"},
        {.name = "threads",
         .kind = TOOL_SIZE,
         .value = &o.threads,
         .help = "threads to use",
         .has_min = true,
         .min = 1,
         .has_max = true,
         .max = 1024},
        {.name = "double", .kind = TOOL_FLAG, .value = &o.in_double, .help = "measure in double"},
        {.name = "budget",
         .kind = TOOL_NUMBER,
         .value = &o.budget,
         .help = "seconds for each median, after three runs",
         .has_min = true,
         .min = 0,
         .has_max = true,
         .max = 3600},
        {.name = "all",
         .kind = TOOL_FLAG,
         .value = &o.all,
         .help = "every shape, layer and core, causal and full"},
        {.name = "plot",
         .kind = TOOL_TEXT,
         .value = &o.plot_dir,
         .argument = "DIR",
         .help = "draw time and memory against T, and a roofline"},
        {.name = "json", .kind = TOOL_FLAG, .value = &o.in_json, .help = "one line of JSON"},
        {0}};
    const tool_usage usage = {
        .about = "Measures the layer or the attention core: median times of forward and of\n"
                 "forward+backward, useful GFLOP/s, and what fraction that is of the peak of\n"
                 "fused multiply-adds, measured in the same run.",
        .arguments = "[layer|core]",
        .max_arguments = 1,
        .options = options};
    const char *what[1];
    int status;
    if (!tool_options_parse(&usage, argc, argv, what, &status))
        return status;
    return run_options(&o, what[0]);
}
