/*
 * dropout.h - dropout on attention weights.
 *
 *     forward     y = keep ? x / (1 - p) : 0
 *     backward    dx = keep ? dy / (1 - p) : 0      the same keep, drawn again
 *
 * Weight (b, h, i, j) is kept iff word j mod 4 of Philox4x32-10 with the key `seed` and the counter
 * (j / 4, i, h, b) is at least p·2³². So the pattern depends on the seed and the place alone: it is
 * never stored, and is the same on every path, for any tile and any number of threads.
 *
 * Statuses as in scores.h.
 *
 * Srivastava et al., "Dropout" (2014); Salmon et al., "Parallel random numbers" (2011).
 */
#ifndef ATTN_DROPOUT_H
#define ATTN_DROPOUT_H

#include <attn/scores.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y and x (B,H,Lq,Lk), contiguous, may be one array. p in [0, 1), else ATTN_ERROR_ARGUMENT. The
 * backward is the forward, applied to dy. Sizes above 2³² would repeat the counter:
 * ATTN_ERROR_SHAPE. */
ATTN_API attn_status attn_dropout_forward(attn_real *y, const attn_real *x, double p, uint64_t seed,
                                          const attn_shape *shape);
ATTN_API attn_status attn_dropout_backward(attn_real *dx, const attn_real *dy, double p,
                                           uint64_t seed, const attn_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
