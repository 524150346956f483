#include <attn/values.h>

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

#include <string.h>

/* o_i = sum_j p_ij v_j                             (rows,d) = (rows,keys) (keys,d) */
void attni_values_band_forward(attni_matrix o, attni_operand p, attni_operand v,
                               const attni_band *band) {
    attni_masked_product(o, p, v, 1, band);
}

/* dp_ij = do_i · v_j, 0 where blocked              (rows,keys) = (rows,d) (d,keys)
 * dv_j  = sum_i p_ij do_i                          (keys,d) = (keys,rows) (rows,d) */
void attni_values_band_backward(attni_matrix dp, attni_matrix dv, attni_operand d_o,
                                attni_operand p, attni_operand v, const attni_band *band) {
    if (dp.data) {
        attni_gemm(&(attni_product){.m = band->rows,
                                    .n = band->keys,
                                    .k = band->d_head,
                                    .trans_b = true,
                                    .alpha = 1,
                                    .a = d_o.data + band->begin * d_o.stride,
                                    .lda = d_o.stride,
                                    .b = v.data,
                                    .ldb = v.stride,
                                    .c = dp.data,
                                    .ldc = dp.stride});
        attni_band_fill_blocked(band, dp.data, dp.stride, 0);
    }
    if (dv.data)
        attni_masked_product_transposed(dv, p, d_o, 1, band);
}

attn_status attn_values_forward(attn_real *context, const attn_real *weights,
                                const attn_real *value, const attn_mask *mask,
                                const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(attni_pairs_check("attn_values_forward", shape));
    ATTNI_TRY(attni_mask_resolve(&resolved, mask, shape));
    size_t heads = shape->batch * shape->num_heads;
    size_t len_q = shape->len_q, len_k = shape->len_k, d = shape->d_head;
    if (heads * len_q == 0)
        return ATTN_OK;
    if (!context || (len_k > 0 && (!weights || !value)))
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_values_forward: %s is NULL",
                          !context   ? "context"
                          : !weights ? "weights"
                                     : "value");
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(0, heads, len_q *len_k *d))
    for (size_t head = 0; head < heads; head++) {
        attni_matrix o = matrix_at(context, head * len_q * d, d);
        attni_operand v = operand_at(value, head / shape_group(shape) * len_k * d, d);
        attni_operand_clean(&v, len_k, d, NULL);
        for (size_t i = 0; i < len_q; i += BAND_ROWS) {
            attni_band band = band_at(&resolved, shape, head, i);
            attni_operand p = operand_at(weights, (head * len_q + i) * len_k, len_k);
            if (!attni_band_blocked_is_zero(&band, p.data, p.stride))
                v.clean = NULL;
            attni_values_band_forward(o, p, v, &band);
        }
    }
    return ATTN_OK;
}

/* A head of dp, and its share of the dv that it has in common with its group. */
static void backward_head(attn_real *dweights, attni_matrix dv, attni_operand d_o,
                          const attn_real *weights, attni_operand v, const attni_mask *mask,
                          const attn_shape *shape, size_t head) {
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    for (size_t i = 0; i < len_q; i += BAND_ROWS) {
        attni_band band = band_at(mask, shape, head, i);
        size_t first = (head * len_q + i) * len_k;
        attni_matrix dp = matrix_at(dweights, first, len_k);
        attni_operand p = operand_at(weights, first, len_k);
        if (dv.data && !attni_band_blocked_is_zero(&band, p.data, p.stride))
            d_o.clean = NULL;
        attni_values_band_backward(dp, dv, d_o, p, v, &band);
        if (dp.data)
            attni_band_fill_beyond(&band, dp.data, dp.stride, 0);
    }
}

attn_status attn_values_backward(attn_real *dweights, attn_real *dvalue, const attn_real *dcontext,
                                 const attn_real *weights, const attn_real *value,
                                 const attn_mask *mask, const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(attni_pairs_check("attn_values_backward", shape));
    ATTNI_TRY(attni_mask_resolve(&resolved, mask, shape));
    size_t heads = shape->batch * shape->num_heads;
    size_t len_q = shape->len_q, len_k = shape->len_k, d = shape->d_head;
    const size_t group = shape_group(shape);
    bool has_pairs = heads * len_q * len_k > 0;
    if (heads == 0 || len_k == 0)
        return ATTN_OK;
    if (has_pairs && !dcontext)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_values_backward: dcontext is NULL");
    if (has_pairs && dweights && !value)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_values_backward: value is NULL, but dweights needs it");
    if (has_pairs && dvalue && !weights)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_values_backward: weights is NULL, but dvalue needs it");
#pragma omp parallel for schedule(dynamic) \
    num_threads(threads_for(0, heads / group, group * len_q * len_k * d))
    for (size_t kv_head = 0; kv_head < heads / group; kv_head++) {
        attni_matrix dv = matrix_at(dvalue, kv_head * len_k * d, d);
        attni_operand v = operand_at(value, kv_head * len_k * d, d);
        if (len_k > 0 && dvalue)
            memset(dv.data, 0, len_k * d * sizeof(real));
        for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            attni_operand d_o = operand_at(dcontext, head * len_q * d, d);
            if (has_pairs)
                attni_operand_clean(&d_o, len_q, d, NULL);
            backward_head(dweights, dv, d_o, weights, v, &resolved, shape, head);
        }
    }
    return ATTN_OK;
}
