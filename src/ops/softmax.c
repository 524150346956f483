#include <attn/softmax.h>

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"

#include <string.h>
#include <tgmath.h>

/* p_j = exp(s_j - m) / l,   m = max_j s_j,   l = sum_j exp(s_j - m),   lse = m + log l */
void attni_softmax_row_forward(real *p, real *lse, const real *s, size_t n) {
    real max = (real)-INFINITY;
    unsigned nan = 0;
    for (size_t j = 0; j < n; j++) {
        max = s[j] > max ? s[j] : max;
        nan |= s[j] != s[j];
    }
    if (nan || max == (real)INFINITY) {
        for (size_t j = 0; j < n; j++)
            p[j] = s[j] == (real)-INFINITY ? 0 : (real)NAN;
        if (lse)
            *lse = (real)NAN;
        return;
    }
    if (max == (real)-INFINITY) {
        memset(p, 0, n * sizeof(real));
        if (lse)
            *lse = (real)-INFINITY;
        return;
    }
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        p[j] = s[j] == (real)-INFINITY ? 0 : exp(s[j] - max);
        sum += (double)p[j];
    }
    real inverse = (real)(1 / sum);
    for (size_t j = 0; j < n; j++)
        p[j] *= inverse;
    if (lse)
        *lse = (real)((double)max + log(sum));
}

/* ds_j = p_j (dp_j - D),   D = sum_j dp_j p_j */
void attni_softmax_row_backward(real *ds, const real *dp, const real *p, size_t n) {
    double sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += (double)dp[j] * (double)p[j];
    real row_sum = (real)sum;
    for (size_t j = 0; j < n; j++)
        ds[j] = p[j] * (dp[j] - row_sum);
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
        attni_softmax_row_forward(weights + i * cols, lse ? lse + i : NULL, scores + i * cols,
                                  cols);
    return ATTN_OK;
}

attn_status attn_softmax_backward(attn_real *dscores, const attn_real *dweights,
                                  const attn_real *weights, size_t rows, size_t cols) {
    ATTNI_TRY(check_call("attn_softmax_backward", rows, cols, dscores, dweights));
    ATTNI_TRY(check_call("attn_softmax_backward", rows, cols, dscores, weights));
#pragma omp parallel for schedule(static) num_threads(threads_for(0, rows, 4 * cols))
    for (size_t i = 0; i < rows; i++)
        attni_softmax_row_backward(dscores + i * cols, dweights + i * cols, weights + i * cols,
                                   cols);
    return ATTN_OK;
}
