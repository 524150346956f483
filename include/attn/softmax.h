/*
 * softmax.h - softmax over the last axis, row by row.
 *
 *     forward    p_j = exp(s_j - m) / l,   m = max s,   l = sum exp(s_j - m),   lse = m + log l
 *     backward   ds = p ∘ (dp - sum(dp ∘ p))
 *
 * The backward is dp times the Jacobian diag(p) - p pᵀ, without ever forming it. A row of -inf
 * alone (every key blocked) has weights 0, lse -inf and ds 0. A score of -inf has weight 0 in every
 * row; in a row that holds a NaN or +inf the other weights and the lse are NaN.
 *
 * An attention sink is one more score in a row, which takes a share of the weight and has no value:
 * p_sink = exp(sink - m) / l. The weights then add up to 1 - p_sink, and dsink = -p_sink sum(dp ∘
 * p). Xiao et al., "Efficient streaming language models with attention sinks" (2024); as a learned
 * number per head: OpenAI, "gpt-oss" (2025).
 *
 * Statuses as in scores.h.
 */
#ifndef ATTN_SOFTMAX_H
#define ATTN_SOFTMAX_H

#include <attn/scores.h>

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

/* With one sink per head: sinks (H), sink_weights (B,H,Lq), the others (B,H,Lq,Lk) and (B,H,Lq).
 * In place as above; lse may be NULL. A row whose scores are all -inf gives its sink the weight 1,
 * and lse = sink. */
ATTN_API attn_status attn_softmax_sinks_forward(attn_real *weights, attn_real *sink_weights,
                                                attn_real *lse, const attn_real *scores,
                                                const attn_real *sinks, const attn_shape *shape);

/* dscores and dsinks (H), summed over samples and queries, are overwritten. */
ATTN_API attn_status attn_softmax_sinks_backward(attn_real *dscores, attn_real *dsinks,
                                                 const attn_real *dweights,
                                                 const attn_real *weights,
                                                 const attn_real *sink_weights,
                                                 const attn_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
