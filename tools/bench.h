/*
 * bench.h - what the files of `attn bench` share.
 */
#ifndef BENCH_H
#define BENCH_H

#include "names64_tools.h"

#include <attn/sdpa.h>

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_shape {
    const char *name; /* "gpt2", or as given: "4,1024,768,12" */
    size_t batch, len, d_model, num_heads;
} bench_shape;

typedef struct bench_case {
    bool layer; /* the whole layer, or the attention core alone on given q, k, v */
    bool causal;
    bool in_double;
    bench_shape shape;
    attn_kernel kernel;
    size_t threads;
    double budget; /* seconds to spend, at least three runs of each kind come first */
} bench_case;

typedef struct bench_result {
    double forward, forward_backward;             /* median seconds */
    double forward_flops, forward_backward_flops; /* useful operations */
    double fma_peak;                              /* GFLOP/s, measured before and after */
    size_t arena_bytes;                           /* saved and scratch of one training step */
    double traffic_bytes; /* inputs, outputs, parameters and arena, each moved once */
} bench_result;

/* The bytes of arena that one training step needs. TOOL_OK, or TOOL_FAILED after one line. */
int bench_arena_bytes(const bench_case *c, size_t *bytes);

/* Measures. A case whose arena cannot be had is refused with its bytes. */
int bench_run(const bench_case *c, bench_result *result);

/* bench_run in the precision that the case names. */
int bench_measure(const bench_case *c, bench_result *result);

/* Bytes of memory that can be used now without pushing anything out. */
double bench_memory_available(void);

/* GB/s that `threads` threads together read from memory. */
double bench_read_bandwidth(size_t threads);

/* Time and memory against T for both paths, and a roofline, into a directory. */
int bench_plots(const bench_case *model, const char *dir);

#endif
