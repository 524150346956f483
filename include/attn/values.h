/*
 * values.h - the weighted sum of values.
 *
 *     forward    o_i   = sum_j p_ij v_j        over allowed j
 *     backward   dp_ij = do_i · v_j            0 where (i,j) is blocked
 *                dv_j  = sum_i p_ij do_i       over allowed i
 *
 * Shapes: weights p (B,H,Lq,Lk), value v (B,Hkv,Lk,d), context o (B,H,Lq,d), contiguous;
 * query heads share heads of values as in scores.h, where the statuses are, too. The mask is asked
 * again here because 0 · NaN is NaN: a blocked value is skipped, not multiplied by zero.
 */
#ifndef ATTN_VALUES_H
#define ATTN_VALUES_H

#include <attn/scores.h>

#ifdef __cplusplus
extern "C" {
#endif

/* context is overwritten. mask may be NULL. */
ATTN_API attn_status attn_values_forward(attn_real *context, const attn_real *weights,
                                         const attn_real *value, const attn_mask *mask,
                                         const attn_shape *shape);

/* dweights and dvalue are overwritten; either may be NULL. */
ATTN_API attn_status attn_values_backward(attn_real *dweights, attn_real *dvalue,
                                          const attn_real *dcontext, const attn_real *weights,
                                          const attn_real *value, const attn_mask *mask,
                                          const attn_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
