/*
 * bench_decode.h - what the files of `attn bench decode` share.
 */
#ifndef BENCH_DECODE_H
#define BENCH_DECODE_H

#include "bench.h"

/* One step appends a token to each sequence of the batch, whose cache then holds shape.len tokens.
 * Bytes are those that a step must read. */
typedef struct bench_decoding {
    double step, attention, projections; /* median seconds: all of it, its parts on their own */
    double cached_bytes, weight_bytes;   /* keys and values that are seen; matrices and biases */
    size_t cache_bytes;                  /* that the cache takes */
    double bandwidth, step_bandwidth;    /* GB/s, reading a buffer as large as what the attention,
                                            and the whole step, read */
} bench_decoding;

/* Measures. TOOL_OK, or TOOL_FAILED after one line. */
int bench_decode_run(const bench_case *c, bench_decoding *result);

/* Median seconds of a step alone, and of a forward over all shape.len tokens instead; negative
 * where memory is short. */
double bench_decode_step(const bench_case *c);
double bench_decode_forward(const bench_case *c);

/* The subcommand; plot_dir may be NULL. */
int bench_decode(const bench_case *c, bool in_json, const char *plot_dir);

#endif
