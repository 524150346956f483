#include <attn/scores.h>

#include "base/fail.h"
#include "ops/band_ops.h"
#include "ops/gemm.h"
#include "ops/parallel.h"

#include <math.h>
#include <string.h>

double attn_default_scale(size_t d_head) {
    return d_head ? 1 / sqrt((double)d_head) : 0;
}

attn_status attni_shape_check(const char *function, const attn_shape *shape) {
    if (!shape)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: shape is NULL", function);
    if (shape->d_head == 0)
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: d_head is 0", function);
    size_t heads, bytes;
    const size_t kv_heads = shape_kv_heads(shape);
    if (kv_heads > 0 && (shape->num_heads == 0 || shape->num_heads % kv_heads != 0))
        return attni_fail(ATTN_ERROR_SHAPE,
                          "%s: num_heads %zu is not a multiple of num_kv_heads %zu", function,
                          shape->num_heads, kv_heads);
    if (!size_mul(&heads, shape->batch, shape->num_heads) ||
        !size_product(&bytes, (size_t[]){heads, shape->len_q, shape->d_head, sizeof(real)}, 4) ||
        !size_product(&bytes, (size_t[]){heads, shape->len_k, shape->d_head, sizeof(real)}, 4))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, num_heads %zu, len_q %zu, len_k %zu, d_head %zu: the "
                          "size of an array wraps",
                          function, shape->batch, shape->num_heads, shape->len_q, shape->len_k,
                          shape->d_head);
    return ATTN_OK;
}

attn_status attni_pairs_check(const char *function, const attn_shape *shape) {
    size_t bytes;
    ATTNI_TRY(attni_shape_check(function, shape));
    if (!size_product(
            &bytes,
            (size_t[]){shape->batch, shape->num_heads, shape->len_q, shape->len_k, sizeof(real)},
            5))
        return attni_fail(ATTN_ERROR_OVERFLOW,
                          "%s: batch %zu, num_heads %zu, len_q %zu, len_k %zu: the size of the "
                          "weights wraps",
                          function, shape->batch, shape->num_heads, shape->len_q, shape->len_k);
    return ATTN_OK;
}

/* s_ij = scale · q_i · k_j, -inf where blocked     (rows,keys) = (rows,d) (d,keys) */
void attni_scores_band_forward(attni_matrix s, attni_operand q, attni_operand k, double scale,
                               const attni_band *band) {
    attni_gemm(&(attni_product){.m = band->rows,
                                .n = band->keys,
                                .k = band->d_head,
                                .trans_b = true,
                                .alpha = scale != 0 ? (real)scale : 1,
                                .a = q.data + band->begin * q.stride,
                                .lda = q.stride,
                                .b = k.data,
                                .ldb = k.stride,
                                .c = s.data,
                                .ldc = s.stride});
    if (scale == 0) /* a product with alpha = 0 would not read a NaN */
        for (size_t i = 0; i < band->rows; i++)
            for (size_t j = 0; j < band->keys; j++)
                s.data[i * s.stride + j] *= 0;
    attni_band_fill_blocked(band, s.data, s.stride, (real)-INFINITY);
}

/* dq_i = scale · sum_j ds_ij k_j                   (rows,d) = (rows,keys) (keys,d)
 * dk_j = scale · sum_i ds_ij q_i                   (keys,d) = (keys,rows) (rows,d) */
void attni_scores_band_backward(attni_matrix dq, attni_matrix dk, attni_operand ds, attni_operand q,
                                attni_operand k, double scale, const attni_band *band) {
    if (dq.data)
        attni_masked_product(dq, ds, k, scale, band);
    if (dk.data)
        attni_masked_product_transposed(dk, ds, q, scale, band);
}

static attn_status check_call(const char *function, const attn_shape *shape, const attn_mask *mask,
                              double scale, attni_mask *resolved) {
    ATTNI_TRY(attni_pairs_check(function, shape));
    if (!isfinite((real)scale))
        return attni_fail(ATTN_ERROR_ARGUMENT, "%s: scale %g is not finite", function, scale);
    return attni_mask_resolve(resolved, mask, shape);
}

attn_status attn_scores_forward(attn_real *scores, const attn_real *query, const attn_real *key,
                                const attn_mask *mask, double scale, const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(check_call("attn_scores_forward", shape, mask, scale, &resolved));
    size_t heads = shape->batch * shape->num_heads;
    size_t len_q = shape->len_q, len_k = shape->len_k, d = shape->d_head;
    if (heads * len_q * len_k == 0)
        return ATTN_OK;
    if (!scores || !query || !key)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_scores_forward: %s is NULL",
                          !scores  ? "scores"
                          : !query ? "query"
                                   : "key");
#pragma omp parallel for schedule(dynamic) num_threads(threads_for(0, heads, len_q *len_k *d))
    for (size_t head = 0; head < heads; head++) {
        attni_operand q = operand_at(query, head * len_q * d, d);
        attni_operand k = operand_at(key, head / shape_group(shape) * len_k * d, d);
        for (size_t i = 0; i < len_q; i += BAND_ROWS) {
            attni_band band = band_at(&resolved, shape, head, i);
            attni_matrix s = matrix_at(scores, (head * len_q + i) * len_k, len_k);
            attni_scores_band_forward(s, q, k, scale, &band);
            attni_band_fill_beyond(&band, s.data, s.stride, (real)-INFINITY);
        }
    }
    return ATTN_OK;
}

/* A head of dq, and its share of the dk that it has in common with its group. */
static void backward_head(attni_matrix dq, attni_matrix dk, const real *dscores, attni_operand q,
                          attni_operand k, const attni_mask *mask, double scale,
                          const attn_shape *shape, size_t head) {
    const size_t len_q = shape->len_q, len_k = shape->len_k;
    for (size_t i = 0; i < len_q; i += BAND_ROWS) {
        attni_band band = band_at(mask, shape, head, i);
        attni_operand ds = operand_at(dscores, (head * len_q + i) * len_k, len_k);
        if (!attni_band_blocked_is_zero(&band, ds.data, ds.stride))
            q.clean = k.clean = NULL;
        attni_scores_band_backward(dq, dk, ds, q, k, scale, &band);
    }
}

attn_status attn_scores_backward(attn_real *dquery, attn_real *dkey, const attn_real *dscores,
                                 const attn_real *query, const attn_real *key,
                                 const attn_mask *mask, double scale, const attn_shape *shape) {
    attni_mask resolved;
    ATTNI_TRY(check_call("attn_scores_backward", shape, mask, scale, &resolved));
    size_t heads = shape->batch * shape->num_heads;
    size_t len_q = shape->len_q, len_k = shape->len_k, d = shape->d_head;
    const size_t group = shape_group(shape);
    bool has_pairs = heads * len_q * len_k > 0;
    if (heads == 0 || (len_q == 0 && len_k == 0))
        return ATTN_OK;
    if (has_pairs && !dscores)
        return attni_fail(ATTN_ERROR_ARGUMENT, "attn_scores_backward: dscores is NULL");
    if (has_pairs && dquery && !key)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_scores_backward: key is NULL, but dquery needs it");
    if (has_pairs && dkey && !query)
        return attni_fail(ATTN_ERROR_ARGUMENT,
                          "attn_scores_backward: query is NULL, but dkey needs it");
#pragma omp parallel for schedule(dynamic) \
    num_threads(threads_for(0, heads / group, group * len_q * len_k * d))
    for (size_t kv_head = 0; kv_head < heads / group; kv_head++) {
        attni_matrix dk = matrix_at(dkey, kv_head * len_k * d, d);
        attni_operand k = operand_at(key, kv_head * len_k * d, d);
        if (has_pairs && dquery)
            attni_operand_clean(&k, len_k, d, NULL);
        if (len_k > 0 && dkey)
            memset(dk.data, 0, len_k * d * sizeof(real));
        for (size_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            attni_matrix dq = matrix_at(dquery, head * len_q * d, d);
            attni_operand q = operand_at(query, head * len_q * d, d);
            if (has_pairs && dkey)
                attni_operand_clean(&q, len_q, d, NULL);
            backward_head(dq, dk, dscores, q, k, &resolved, scale, shape, head);
        }
    }
    return ATTN_OK;
}
