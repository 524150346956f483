#include <attn/score_terms.h>

#include "base/fail.h"
#include "ops/band_ops.h"

#include <math.h>

/* The slopes of P heads, a power of two, run from 2^(-8/P) to 2^-8 by equal ratios. */
real attni_alibi_slope(size_t h, size_t num_heads) {
    size_t power = 1;
    while (power <= num_heads / 2)
        power *= 2;
    /* past P heads: numbers 0, 2, 4, ... of those of 2P */
    const double step =
        h < power ? (double)(h + 1) / (double)power : ((double)(h - power) + 0.5) / (double)power;
    return (real)exp2(-8 * step);
}

attn_status attn_alibi_slopes(attn_real *slopes, size_t num_heads) {
    if (!slopes && num_heads > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_alibi_slopes: slopes is NULL");
    for (size_t h = 0; h < num_heads; h++)
        slopes[h] = attni_alibi_slope(h, num_heads);
    return ATTN_OK;
}
