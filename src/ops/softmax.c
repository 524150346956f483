#include <attn/softmax.h>

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"

#include <stdbool.h>
#include <tgmath.h>

/* Maxima and sums run in this many lanes, lane l over the columns l, l + LANES, ... */
enum { LANES = 8 };

/* The largest number of a row, -inf for an empty one; *has_nan tells of a NaN, which is skipped. */
static real row_max(const real *s, size_t n, bool *has_nan) {
    real max[LANES];
    unsigned nan[LANES] = {0}, any = 0;
    for (size_t l = 0; l < LANES; l++)
        max[l] = (real)-INFINITY;
    for (size_t j = 0; j < n; j += LANES)
        for (size_t l = 0; l < size_min(LANES, n - j); l++) {
            max[l] = s[j + l] > max[l] ? s[j + l] : max[l];
            nan[l] |= s[j + l] != s[j + l];
        }
    for (size_t l = 0; l < LANES; l++) {
        max[0] = max[l] > max[0] ? max[l] : max[0];
        any |= nan[l];
    }
    *has_nan = any;
    return max[0];
}

/* sum_j x_j y_j */
static double dot(const real *x, const real *y, size_t n) {
    double sum[LANES] = {0};
    for (size_t j = 0; j < n; j += LANES)
        for (size_t l = 0; l < size_min(LANES, n - j); l++)
            sum[l] += (double)x[j + l] * (double)y[j + l];
    for (size_t l = 1; l < LANES; l++)
        sum[0] += sum[l];
    return sum[0];
}

/* p_j = exp(s_j - m) / l,   m = max_j s_j,   l = sum_j exp(s_j - m),   lse = m + log l
 *
 * where a sink is one more score among the s_j, with a weight but without a column. Rows of -inf
 * alone, and rows with a NaN or +inf, where m is no number to subtract, come first. */
void attni_softmax_row_forward(real *p, real *lse, real *sink_weight, const real *s,
                               const real *sink, size_t n) {
    bool has_nan;
    real max = row_max(s, n, &has_nan), weight = 0;
    double sum = 0;
    if (sink) {
        max = *sink > max ? *sink : max;
        has_nan = has_nan || *sink != *sink;
    }
    if (has_nan || max == (real)INFINITY) {
        for (size_t j = 0; j < n; j++)
            p[j] = s[j] == (real)-INFINITY ? 0 : (real)NAN;
        sum = weight = (real)NAN;
    } else if (max == (real)-INFINITY) {
        for (size_t j = 0; j < n; j++)
            p[j] = 0;
    } else {
        for (size_t j = 0; j < n; j++) {
            p[j] = s[j] == (real)-INFINITY ? 0 : exp(s[j] - max);
            sum += (double)p[j];
        }
        weight = sink ? exp(*sink - max) : 0;
        sum += (double)weight;
        const real inverse = (real)(1 / sum);
        for (size_t j = 0; j < n; j++)
            p[j] *= inverse;
        weight *= inverse;
    }
    if (lse)
        *lse = sum == 0 ? (real)-INFINITY : (real)((double)max + log(sum));
    if (sink)
        *sink_weight = weight;
}

/* ds_j = p_j (dp_j - D),   D = sum_j dp_j p_j
 *
 * A sink has no value, so its dp is 0: ds of the sink is -p_sink D. Returns D. */
double attni_softmax_row_backward(real *ds, const real *dp, const real *p, size_t n) {
    const double row_sum = dot(dp, p, n);
    for (size_t j = 0; j < n; j++)
        ds[j] = p[j] * (dp[j] - (real)row_sum);
    return row_sum;
}

static attn_status check_call(const char *function, size_t rows, size_t cols, const void *out,
                              const void *in) {
    size_t bytes;
    if (!size_product(&bytes, (size_t[]){rows, size_max(cols, 1), sizeof(real)}, 3))
        return attni_fail(ATTN_ERROR_OVERFLOW, "%s: rows %zu, cols %zu: the size wraps", function,
                          rows, cols);
    if (cols > 0 && rows > 0 && (!out || !in))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: an array is NULL", function);
    return ATTN_OK;
}

attn_status attn_softmax_forward(attn_real *weights, attn_real *lse, const attn_real *scores,
                                 size_t rows, size_t cols) {
    ATTNI_TRY(check_call("attn_softmax_forward", rows, cols, weights, scores));
#pragma omp parallel for schedule(static) num_threads(threads_for(0, rows, 16 * cols))
    for (size_t i = 0; i < rows; i++)
        attni_softmax_row_forward(weights + i * cols, lse ? lse + i : NULL, NULL, scores + i * cols,
                                  NULL, cols);
    return ATTN_OK;
}

attn_status attn_softmax_backward(attn_real *dscores, const attn_real *dweights,
                                  const attn_real *weights, size_t rows, size_t cols) {
    ATTNI_TRY(check_call("attn_softmax_backward", rows, cols, dscores, dweights));
    ATTNI_TRY(check_call("attn_softmax_backward", rows, cols, dscores, weights));
#pragma omp parallel for schedule(static) num_threads(threads_for(0, rows, 4 * cols))
    for (size_t i = 0; i < rows; i++)
        (void)attni_softmax_row_backward(dscores + i * cols, dweights + i * cols,
                                         weights + i * cols, cols);
    return ATTN_OK;
}

attn_status attn_softmax_sinks_forward(attn_real *weights, attn_real *sink_weights, attn_real *lse,
                                       const attn_real *scores, const attn_real *sinks,
                                       const attn_shape *shape) {
    ATTNI_TRY(attni_pairs_check("attn_softmax_sinks_forward", shape));
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    const size_t rows = shape->batch * shape->num_heads * len_q;
    ATTNI_TRY(check_call("attn_softmax_sinks_forward", rows, len_k, weights, scores));
    if (rows > 0 && (!sinks || !sink_weights))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_softmax_sinks_forward: %s is NULL",
                          sinks ? "sink_weights" : "sinks");
#pragma omp parallel for schedule(static) num_threads(threads_for(0, rows, 16 * len_k))
    for (size_t i = 0; i < rows; i++)
        attni_softmax_row_forward(weights + i * len_k, lse ? lse + i : NULL, sink_weights + i,
                                  scores + i * len_k, sinks + i / len_q % shape->num_heads, len_k);
    return ATTN_OK;
}

/* dsink_h = -sum over b, i of p_sink D */
attn_status attn_softmax_sinks_backward(attn_real *dscores, attn_real *dsinks,
                                        const attn_real *dweights, const attn_real *weights,
                                        const attn_real *sink_weights, const attn_shape *shape) {
    ATTNI_TRY(attni_pairs_check("attn_softmax_sinks_backward", shape));
    const size_t heads = shape->num_heads, len_q = shape->len_q, len_k = shape->len_k;
    const size_t rows = shape->batch * heads * len_q;
    ATTNI_TRY(check_call("attn_softmax_sinks_backward", rows, len_k, dscores, dweights));
    ATTNI_TRY(check_call("attn_softmax_sinks_backward", rows, len_k, dscores, weights));
    if ((rows > 0 && !sink_weights) || (heads > 0 && !dsinks))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_softmax_sinks_backward: %s is NULL",
                          dsinks ? "sink_weights" : "dsinks");
#pragma omp parallel for schedule(static) num_threads(threads_for(0, heads, rows *len_k))
    for (size_t h = 0; h < heads; h++) {
        double sum = 0;
        for (size_t b = 0; b < shape->batch; b++)
            for (size_t i = (b * heads + h) * len_q; i < (b * heads + h + 1) * len_q; i++)
                sum -= (double)sink_weights[i] *
                       attni_softmax_row_backward(dscores + i * len_k, dweights + i * len_k,
                                                  weights + i * len_k, len_k);
        dsinks[h] = (real)sum;
    }
    return ATTN_OK;
}
