/*
 * linear.h - the affine map y = x Wᵀ + b, with torch's layout of W.
 *
 * Shapes: x (N, in), W (out, in), b (out), y (N, out); N counts rows, all tokens of a batch.
 *
 *     forward   y  = x Wᵀ + b
 *     backward  dx = dy W,   dW += dyᵀ x,   db += sum of dy over rows
 *
 * All arrays are contiguous. Thread-safe on different data.
 */
#ifndef ATTN_LINEAR_H
#define ATTN_LINEAR_H

#include <attn/status.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y (rows, d_out) is overwritten; b may be NULL (no bias). */
ATTN_API attn_status attn_linear_forward(attn_real *y, const attn_real *x, const attn_real *w,
                                         const attn_real *b, size_t rows, size_t d_in,
                                         size_t d_out);

/* dx (rows, d_in) is overwritten, dw (d_out, d_in) and db (d_out) are added to; each may be NULL
 * where it is not wanted. x may be NULL without dw, w without dx. */
ATTN_API attn_status attn_linear_backward(attn_real *dx, attn_real *dw, attn_real *db,
                                          const attn_real *dy, const attn_real *x,
                                          const attn_real *w, size_t rows, size_t d_in,
                                          size_t d_out);

#ifdef __cplusplus
}
#endif

#endif
