/* attn bench - how fast and how large attention is on this machine, against its own peak. */
#include "bench.h"
#include "bench_decode.h"

#include "commands.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "tool.h"

#include <attn/isa.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const bench_shape shapes[] = {
    {"toy", 32, 32, 64, 4},     {"char", 16, 256, 384, 6},   {"seed", 8, 512, 512, 8},
    {"gpt2", 4, 1024, 768, 12}, {"long8k", 1, 8192, 512, 8}, {"long32k", 1, 32768, 512, 8},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

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

double bench_read_bandwidth(size_t threads, size_t bytes) {
    attn_arena arena; /* in large pages, as the data of what is measured */
    void *buffer;
    double rate = 0;
    if (attn_arena_create(&arena, bytes + 256) == ATTN_OK &&
        attn_arena_alloc(&arena, &buffer, bytes, 1) == ATTN_OK) {
        memset(buffer, 0, bytes);
        rate = attn_read_bandwidth(threads, buffer, bytes);
    }
    attn_arena_destroy(&arena);
    return rate;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, size_t count) {
    qsort(x, count, sizeof *x, compare);
    return x[count / 2];
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

static int run_one(const bench_case *c, bool in_json) {
    bench_result result;
    if (bench_measure(c, &result) != TOOL_OK)
        return TOOL_FAILED;
    if (in_json) {
        tool_json json = tool_json_start(stdout);
        bench_json_case(&json, c, &result);
        return tool_json_finish(&json, TOOL_OK);
    }
    bench_print_heading(c);
    bench_print_row(c, &result);
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
        bench_print_heading(&c);
    for (size_t i = 0; table_case(&c, i); i++) {
        bench_result result;
        if (bench_measure(&c, &result) != TOOL_OK)
            status = TOOL_FAILED;
        else if (in_json)
            bench_json_case(&json, &c, &result);
        else
            bench_print_row(&c, &result);
    }
    if (!in_json)
        return status;
    tool_json_close(&json, ']');
    return tool_json_finish(&json, status);
}

static int parse_shape(bench_shape *shape, const char *text) {
    for (size_t i = 0; i < SHAPES; i++)
        if (strcmp(text, shapes[i].name) == 0) {
            *shape = shapes[i];
            return TOOL_OK;
        }
    size_t sizes[4];
    if (!bench_parse_sizes(text, sizes))
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
    const char *shape, *plot_dir, *bias;
    bench_variants variants;
    int rope;
    bool causal, in_json, all, in_double;
    int kernel;
    size_t threads;
    double budget;
} bench_options;

/* The variants of the options, checked against the shape. */
static int take_variants(bench_case *c, const bench_options *o) {
    c->variants = o->variants;
    c->variants.rope = (attn_rope)o->rope;
    c->variants.has_bias = o->bias != NULL;
    if (o->bias && !bench_parse_sizes(o->bias, c->variants.bias))
        return tool_usage_error("--bias: '%s' is not four sizes B,H,Lq,Lk", o->bias);
    if (!bench_has_variants(&c->variants))
        return TOOL_OK;
    if (o->all || o->plot_dir)
        return tool_usage_error("--%s measures plain attention: no variant beside it",
                                o->all ? "all" : "plot");
    return bench_variants_check(c);
}

/* A token at a time behind a cache of T tokens. */
static int run_decode(bench_case *c, const bench_options *o) {
    if (o->all || o->bias || o->variants.dropout > 0 || o->kernel != ATTN_KERNEL_AUTO)
        return tool_usage_error("decode has no --%s", o->all                    ? "all"
                                                      : o->bias                 ? "bias"
                                                      : o->variants.dropout > 0 ? "dropout"
                                                                                : "kernel");
    if (parse_shape(&c->shape, o->shape ? o->shape : "1,4096,768,12") != TOOL_OK)
        return TOOL_USAGE;
    c->variants = o->variants;
    c->variants.rope = (attn_rope)o->rope;
    if (bench_variants_check(c) != TOOL_OK)
        return TOOL_USAGE;
    const int status = o->plot_dir ? tool_directory_create(o->plot_dir) : TOOL_OK;
    return status == TOOL_OK ? bench_decode(c, o->in_json, o->plot_dir) : status;
}

static int run_options(const bench_options *o, const char *what) {
    bench_case c = {.causal = o->causal,
                    .in_double = o->in_double,
                    .kernel = (attn_kernel)o->kernel,
                    .threads = o->threads,
                    .budget = o->budget};
    if (what && strcmp(what, "decode") == 0)
        return run_decode(&c, o);
    if (o->all && (what || o->shape))
        return tool_usage_error("--all measures everything: no '%s' beside it",
                                what ? what : "--shape");
    if (!o->all && !o->plot_dir && !what)
        return tool_usage_error(
            "what to measure is missing: layer, core, decode, --all or --plot DIR");
    if (o->in_json && !o->all && !what)
        return tool_usage_error("--json needs numbers: layer, core or --all beside --plot");
    if (what && strcmp(what, "layer") != 0 && strcmp(what, "core") != 0)
        return tool_usage_error("'%s' is neither layer, core nor decode", what);
    c.layer = !what || strcmp(what, "layer") == 0; /* --plot alone draws the layer */
    if (parse_shape(&c.shape, o->shape ? o->shape : "gpt2") != TOOL_OK)
        return TOOL_USAGE;
    if (take_variants(&c, o) != TOOL_OK)
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
    static const char *const kernels[] = {"auto", "reference", "fused", NULL};
    static const char *const ropes[] = {
        [ATTN_ROPE_NONE] = "none",
        [ATTN_ROPE_INTERLEAVED] = "interleaved",
        [ATTN_ROPE_HALF] = "half",
        [ATTN_ROPE_HALF + 1] = NULL,
    };
    bench_options o = {.threads = default_threads(), .budget = 2};
    const tool_option options[] = {
        {.name = "shape",
         .kind = TOOL_TEXT,
         .value = &o.shape,
         .argument = "NAME|B,T,D,H",
         .help = "toy, char, seed, gpt2 (default), long8k, long32k, or four sizes"},
        {.name = "causal", .kind = TOOL_FLAG, .value = &o.causal, .help = "hide later tokens"},
        {.name = "kv-heads",
         .kind = TOOL_SIZE,
         .value = &o.variants.num_kv_heads,
         .shown = "one for each head",
         .help = "heads of keys and values, shared by the others",
         .has_min = true,
         .min = 1},
        {.name = "window",
         .kind = TOOL_SIZE,
         .value = &o.variants.window,
         .shown = "none",
         .help = "keys that a query sees: its own and those before it",
         .has_min = true,
         .min = 1},
        {.name = "rope",
         .kind = TOOL_CHOICE,
         .value = &o.rope,
         .choices = ropes,
         .help = "queries and keys turned by their positions"},
        {.name = "softcap",
         .kind = TOOL_NUMBER,
         .value = &o.variants.softcap,
         .shown = "off",
         .help = "scores become X tanh(score / X)",
         .has_min = true,
         .min = 0},
        {.name = "bias",
         .kind = TOOL_TEXT,
         .value = &o.bias,
         .argument = "B,H,Lq,Lk",
         .help = "added to the scores, with its gradient; each size whole or 1"},
        {.name = "alibi",
         .kind = TOOL_FLAG,
         .value = &o.variants.alibi,
         .help = "scores fall with distance, by slopes with a gradient"},
        {.name = "sinks",
         .kind = TOOL_FLAG,
         .value = &o.variants.sinks,
         .help = "one more logit in every row of a head, with its gradient"},
        {.name = "dropout",
         .kind = TOOL_NUMBER,
         .value = &o.variants.dropout,
         .shown = "0",
         .help = "probability that a weight is dropped in training",
         .has_min = true,
         .min = 0},
        {.name = "kernel",
         .kind = TOOL_CHOICE,
         .value = &o.kernel,
         .choices = kernels,
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
                 "fused multiply-adds, measured in the same run. Where a variant is on, plain\n"
                 "attention takes turns with it, and the ratio of both times is shown too.\n"
                 "decode measures a token behind a cache of T tokens, against the reading speed.",
        .arguments = "[layer|core|decode]",
        .max_arguments = 1,
        .options = options};
    const char *what[1];
    int status;
    if (!tool_options_parse(&usage, argc, argv, what, &status))
        return status;
    return run_options(&o, what[0]);
}
