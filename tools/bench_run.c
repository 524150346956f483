/* One measurement of `attn bench`, in the precision of this compilation. */
#include "names64_tools.h"

#include "bench_call.h"
#include "tool.h"

#include <attn/isa.h>

typedef attn_status call_function(bench_call *call);

enum { LEAST = 3, MOST = 2000 };

typedef struct timing {
    double seconds, plain_seconds; /* medians */
    double ratio;                  /* median of plain / own, each pair one after the other */
} timing;

static bool time_once(double *seconds, call_function *function, bench_call *call) {
    const double before = tool_seconds();
    const bool done = function(call) == ATTN_OK;
    *seconds = tool_seconds() - before;
    return done;
}

/* Medians after a run that warms caches and threads. With `plain` (or NULL) the two take turns, so
 * that whatever else the machine does slows both. False on failure. */
static bool time_calls(timing *t, call_function *function, bench_call *call, bench_call *plain) {
    double own[MOST], other[MOST], ratios[MOST];
    const size_t kinds = plain ? 2 : 1;
    size_t count = 0;
    if (!time_once(&own[0], function, call) || (plain && !time_once(&other[0], function, plain)))
        return false;
    for (const double start = tool_seconds();
         count < LEAST ||
         (count < MOST && tool_seconds() - start < (double)kinds * call->c->budget);
         count++) {
        if (!time_once(&own[count], function, call) ||
            (plain && !time_once(&other[count], function, plain)))
            return false;
        ratios[count] = plain ? other[count] / own[count] : 1;
    }
    *t = (timing){.seconds = bench_median(own, count), .ratio = bench_median(ratios, count)};
    t->plain_seconds = plain ? bench_median(other, count) : t->seconds;
    return true;
}

/* Pairs of one head of one sample that count as useful: half of them all below a causal mask, of a
 * window those that it allows. */
static double useful_pairs(const bench_case *c) {
    const double len = (double)c->shape.len, window = (double)c->variants.window;
    const double pairs = len * len * (c->causal || window > 0 ? 0.5 : 1);
    const double seen = window * len - window * (window - 1) / 2;
    return window > 0 && window < len && seen < pairs ? seen : pairs;
}

/* Useful operations: 4·d for each pair in the two products of attention, 2 for each weight and
 * token in the four projections. A backward costs 2.5 and 2 times its forward. */
static void count_work(const bench_call *call, bench_result *result) {
    const bench_shape *s = &call->c->shape;
    const double tokens = (double)s->batch * (double)s->len, width = (double)s->d_model;
    const double kv_width = (double)call->kv_reals / tokens;
    const double attention = 4 * (double)s->batch * width * useful_pairs(call->c);
    const double projections = call->c->layer ? 4 * tokens * width * (width + kv_width) : 0;
    result->forward_flops = attention + projections;
    result->forward_backward_flops = 3.5 * attention + 3 * projections;
    result->traffic_bytes = bench_call_data_bytes(call) + (double)result->arena_bytes;
}

static int measure(bench_call *call, bench_call *plain, bench_result *result) {
    timing forward, both;
    const double peak_before = attn_fma_peak(call->c->threads);
    if (!time_calls(&forward, bench_call_forward, call, plain) ||
        !time_calls(&both, bench_call_both, call, plain))
        return tool_fail("shape %s: %s", call->c->shape.name, attn_error_message());
    const double peak_after = attn_fma_peak(call->c->threads);
    *result = (bench_result){.forward = forward.seconds,
                             .forward_backward = both.seconds,
                             .has_plain = plain != NULL,
                             .plain_forward = forward.plain_seconds,
                             .plain_forward_backward = both.plain_seconds,
                             .plain_forward_ratio = forward.ratio,
                             .plain_ratio = both.ratio,
                             .fma_peak = peak_before > peak_after ? peak_before : peak_after,
                             .arena_bytes = result->arena_bytes,
                             .kernel = call->ran};
    count_work(call, result);
    return TOOL_OK;
}

int bench_run(const bench_case *c, bench_result *result) {
    bench_case plain_case = *c;
    plain_case.variants = (bench_variants){0};
    const bool has_plain = bench_has_variants(&c->variants);
    bench_call call = {0}, plain = {0};
    *result = (bench_result){0};
    int status = bench_arena_bytes(c, &result->arena_bytes);
    if (status == TOOL_OK)
        status = bench_call_open(&call, c);
    if (status == TOOL_OK && has_plain)
        status = bench_call_open(&plain, &plain_case);
    if (status == TOOL_OK)
        status = measure(&call, has_plain ? &plain : NULL, result);
    bench_call_close(&plain);
    bench_call_close(&call);
    return status;
}
