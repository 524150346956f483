/*
 * bench_call.h - one attention with everything it reads and writes, ready to be run again and
 * again.
 */
#ifndef BENCH_CALL_H
#define BENCH_CALL_H

#include "bench.h"

#include <attn/mha.h>

/* Where the layer and the core share a field, the layer's x is the query and its y the context. */
typedef struct bench_call {
    const bench_case *c;
    attn_arena arena, data; /* the call's; the caller's arrays, which large pages suit as well */
    size_t reals, kv_reals; /* in a (B,T,D), and in the core's keys or values */
    size_t bias_reals, num_params;
    attn_real *query, *key, *value, *context, *dquery, *dkey, *dvalue, *dcontext;
    attn_real *turned_query, *turned_key; /* the core's, with rope */
    attn_real *bias, *dbias, *slopes, *dslopes, *sinks, *dsinks;
    attn_real *theta, *dtheta;
    attn_mha_config mha;
    attn_mha_params params, dparams;
    attn_mha_input mha_input;
    attn_sdpa_config sdpa;
    attn_sdpa_input sdpa_input;
    attn_sdpa_output sdpa_output;
    attn_kernel ran; /* the path that the last training step took */
} bench_call;

/* Arrays filled and memory taken, or TOOL_FAILED after one line. Close it in any case. */
int bench_call_open(bench_call *call, const bench_case *c);
void bench_call_close(bench_call *call);

/* An inference. */
attn_status bench_call_forward(bench_call *call);

/* What a training step does, every gradient included. */
attn_status bench_call_both(bench_call *call);

/* Bytes of the caller's own arrays. */
double bench_call_data_bytes(const bench_call *call);

#endif
