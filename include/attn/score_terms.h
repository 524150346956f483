/*
 * score_terms.h - what may be done to a score between its scale and the masks.
 *
 *     forward     t = c·tanh(s / c)                     softcap; t = s without it
 *                 u = t + bias_bhij - slope_h·|p - j|   p = i + offset as in mask.h
 *
 *     backward    ds = du · (1 - (t / c)²)
 *                 dbias = du, summed over the dimensions that the bias broadcasts
 *                 dslope_h = -sum over b, i, j of du·|p - j|
 *
 * Softcap: Gemma team, "Gemma 2" (2024), section 2. ALiBi: Press et al., "Train short, test long"
 * (2022), section 3; the slopes of a number of heads that is no power of two are those of its
 * reference implementation.
 *
 * Statuses as in scores.h; ATTN_ERROR_ARGUMENT also for a softcap that is negative or not finite
 * and for a gradient of what is not there, ATTN_ERROR_SHAPE for a gradient whose elements overlap.
 */
#ifndef ATTN_SCORE_TERMS_H
#define ATTN_SCORE_TERMS_H

#include <attn/scores.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed = nothing is done. */
typedef struct attn_score_terms {
    double softcap;                /* c; 0 = off */
    const attn_real *bias;         /* through bias_strides, in reals; NULL = none */
    attn_broadcast bias_strides;   /* stride 0 broadcasts */
    const attn_real *alibi_slopes; /* (H); NULL = none */
} attn_score_terms;

/* slopes (num_heads): 2^(-8(h+1)/H) where H is a power of two; otherwise those of the largest power
 * of two P below H, then numbers 0, 2, 4, ... of those of 2P. */
ATTN_API attn_status attn_alibi_slopes(attn_real *slopes, size_t num_heads);

/* out (B,H,Lq,Lk) = u of the scores (B,H,Lq,Lk), contiguous both; they may be one array. A pair
 * that mask (or NULL) or a bias of -inf blocks gives -inf, whatever is there. mask says where p is,
 * too. (A score of -inf blocks nothing: it may be a product that overflowed, and softcap makes -c
 * of it.) */
ATTN_API attn_status attn_score_terms_forward(attn_real *out, const attn_real *scores,
                                              const attn_score_terms *terms, const attn_mask *mask,
                                              const attn_shape *shape);

/* From dout = du (B,H,Lq,Lk) and the scores given to the forward: dscores (B,H,Lq,Lk), which may be
 * du; dbias through the strides of the bias; dslopes (H). All are overwritten, each may be NULL.
 * Pairs that were blocked, by mask or by a bias of -inf, give 0. */
ATTN_API attn_status attn_score_terms_backward(attn_real *dscores, attn_real *dbias,
                                               attn_real *dslopes, const attn_real *dout,
                                               const attn_real *scores,
                                               const attn_score_terms *terms, const attn_mask *mask,
                                               const attn_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
