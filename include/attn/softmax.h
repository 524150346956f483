/*
 * softmax.h - softmax over the last axis, row by row.
 *
 *     forward    p_j = exp(s_j - m) / l,   m = max s,   l = sum exp(s_j - m),   lse = m + log l
 *     backward   ds = p ∘ (dp - sum(dp ∘ p))
 *
 * The backward is dp times the Jacobian diag(p) - p pᵀ, without ever forming it. A row of -inf
 * alone (every key blocked) has weights 0, lse -inf and ds 0. A score of -inf has weight 0 in every
 * row; in a row that holds a NaN or +inf the other weights and the lse are NaN.
 */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* weights (rows, cols) is overwritten and may be the array `scores` itself; lse (rows) may be NULL.
 */
ATTN_API attn_status attn_softmax_forward(attn_real *weights, attn_real *lse,
                                          const attn_real *scores, size_t rows, size_t cols);

/* dscores (rows, cols) is overwritten and may be the array `dweights` itself. */
ATTN_API attn_status attn_softmax_backward(attn_real *dscores, const attn_real *dweights,
                                           const attn_real *weights, size_t rows, size_t cols);

#ifdef __cplusplus
}
#endif

#endif
