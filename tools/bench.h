/*
 * bench.h - what the files of `attn bench` share.
 */
#ifndef BENCH_H
#define BENCH_H

#include "json.h"
#include "names64_tools.h"

#include <attn/rope.h>
#include <attn/sdpa.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_shape {
    const char *name; /* "gpt2", or as given: "4,1024,768,12" */
    size_t batch, len, d_model, num_heads;
} bench_shape;

/* What makes attention other than plain; zeroed = plain. Every gradient is measured. */
typedef struct bench_variants {
    size_t num_kv_heads; /* 0 = one for every head */
    double dropout;
    size_t window; /* keys that a query sees: its own and those before it; 0 = all */
    bool alibi;    /* slopes that learn */
    double softcap;
    attn_rope rope;
    bool has_bias;
    size_t bias[4]; /* its sizes along (B,H,Lq,Lk), each whole or 1 */
    bool sinks;
} bench_variants;

typedef struct bench_case {
    bool layer; /* the whole layer, or the attention core alone on given q, k, v */
    bool causal;
    bench_variants variants;
    bool in_double;
    bench_shape shape;
    attn_kernel kernel;
    size_t threads;
    double budget; /* seconds to spend, at least three runs of each kind come first */
} bench_case;

typedef struct bench_result {
    double forward, forward_backward;             /* median seconds */
    bool has_plain;                               /* with variants, plain attention beside them: */
    double plain_forward, plain_forward_backward; /* median seconds, runs taken in turns */
    double plain_forward_ratio, plain_ratio;      /* median of plain / this, forward+backward */
    double forward_flops, forward_backward_flops; /* useful operations */
    double fma_peak;                              /* GFLOP/s, measured before and after */
    size_t arena_bytes;                           /* saved and scratch of one training step */
    attn_kernel kernel;                           /* that ran: fused or reference */
    double traffic_bytes; /* inputs, outputs, parameters and arena, each moved once */
} bench_result;

/* Width of a head, and heads of keys and values. */
static inline size_t bench_d_head(const bench_case *c) {
    return c->shape.d_model / c->shape.num_heads;
}

static inline size_t bench_kv_heads(const bench_case *c) {
    return c->variants.num_kv_heads ? c->variants.num_kv_heads : c->shape.num_heads;
}

/* The median of count > 0 numbers, which are sorted. */
double bench_median(double *x, size_t count);

/* Whether attention is other than plain. */
bool bench_has_variants(const bench_variants *v);

/* Whether the variants fit the shape: TOOL_OK, or TOOL_USAGE after one line. */
int bench_variants_check(const bench_case *c);

/* Four positive whole numbers, separated by commas. */
bool bench_parse_sizes(const char *text, size_t sizes[4]);

/* "half", "interleaved" or "none". */
const char *bench_rope_name(attn_rope rope);

/* "kv-heads 3, window 256", for a heading. */
void bench_variants_words(char *text, size_t size, const bench_variants *v);

/* The bytes of arena that one training step needs. TOOL_OK, or TOOL_FAILED after one line. */
int bench_arena_bytes(const bench_case *c, size_t *bytes);

/* Measures. A case whose arena cannot be had is refused with its bytes. */
int bench_run(const bench_case *c, bench_result *result);

/* bench_run in the precision that the case names. */
int bench_measure(const bench_case *c, bench_result *result);

/* A table: its heading, then its rows. */
void bench_print_heading(const bench_case *c);
void bench_print_row(const bench_case *c, const bench_result *r);

/* One object. */
void bench_json_case(tool_json *json, const bench_case *c, const bench_result *r);

/* Bytes of memory that can be used now without pushing anything out. */
double bench_memory_available(void);

/* GB/s at which `threads` threads together read so many bytes again and again; 0 without memory. */
double bench_read_bandwidth(size_t threads, size_t bytes);

/* Time and memory against T for both paths, and a roofline, into a directory. */
int bench_plots(const bench_case *model, const char *dir);

#endif
