#include "ops/dropout.h"

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/parallel.h"

#include <attn/dropout.h>
#include <attn/random.h>

attn_status attni_dropout_check(const char *function, const attn_shape *shape) {
    const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"batch", shape->batch},
                 {"num_heads", shape->num_heads},
                 {"len_q", shape->len_q},
                 {"len_k / 4", shape->len_k / 4}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        if (sizes[n].size > UINT32_MAX)
            return attni_fail(ATTN_ERROR_SHAPE,
                              "%s: %s %zu: dropout counts up to 2^32 of each, then it would repeat",
                              function, sizes[n].name, sizes[n].size);
    return ATTN_OK;
}

/* y_j = keep_j ? x_j / (1 - p) : 0
 *
 * Four columns share a block of the generator. */
void attni_dropout_row(real *y, const real *x, double p, uint64_t seed, const attni_pair_row *row,
                       size_t n) {
    const uint64_t threshold = dropout_threshold(p);
    const real factor = (real)(1 / (1 - p));
    for (size_t j = 0; j < n; j += 4) {
        const uint32_t counter[4] = {(uint32_t)(j / 4), (uint32_t)row->query, (uint32_t)row->h,
                                     (uint32_t)row->b};
        uint32_t words[4];
        attn_philox4x32(words, counter, seed);
        for (size_t c = 0; c < size_min(4, n - j); c++)
            y[j + c] = words[c] >= threshold ? x[j + c] * factor : 0;
    }
}

static attn_status check_call(const char *function, const real *out, const real *in, double p,
                              const attn_shape *shape) {
    ATTNI_TRY(attni_pairs_check(function, shape));
    ATTNI_TRY(attni_dropout_check(function, shape));
    if (!(p >= 0 && p < 1)) /* NaN too */
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: p %g is not in [0, 1)", function, p);
    if ((!out || !in) && shape->batch * shape->num_heads * shape->len_q * shape->len_k > 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: an array is NULL", function);
    return ATTN_OK;
}

static void drop(real *y, const real *x, double p, uint64_t seed, const attn_shape *shape) {
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    const size_t rows = len_k ? shape->batch * shape->num_heads * len_q : 0;
#pragma omp parallel for schedule(static) num_threads(threads_for(0, rows, 16 * len_k))
    for (size_t r = 0; r < rows; r++) {
        const size_t head = r / len_q;
        const attni_pair_row row = {head / shape->num_heads, head % shape->num_heads, r % len_q};
        attni_dropout_row(y + r * len_k, x + r * len_k, p, seed, &row, len_k);
    }
}

attn_status attn_dropout_forward(attn_real *y, const attn_real *x, double p, uint64_t seed,
                                 const attn_shape *shape) {
    ATTNI_TRY(check_call("attn_dropout_forward", y, x, p, shape));
    drop(y, x, p, seed, shape);
    return ATTN_OK;
}

/* dx_j = keep_j ? dy_j / (1 - p) : 0, with the same keep. */
attn_status attn_dropout_backward(attn_real *dx, const attn_real *dy, double p, uint64_t seed,
                                  const attn_shape *shape) {
    ATTNI_TRY(check_call("attn_dropout_backward", dx, dy, p, shape));
    drop(dx, dy, p, seed, shape);
    return ATTN_OK;
}
