/*
 * linear_products.h (internal) - the matrix products of an affine map, for calls that run
 * several maps in one parallel region.
 *
 * Shapes as in attn/linear.h: x (N, in), W (out, in), b (out), y (N, out).
 */
#ifndef ATTNI_OPS_LINEAR_PRODUCTS_H
#define ATTNI_OPS_LINEAR_PRODUCTS_H

#include "ops/gemm.h"

/* y = x Wᵀ + b        (N,out) = (N,in) (in,out) + (1,out); b may be NULL */
static inline attni_product linear_product_y(real *y, const real *x, const real *w, const real *b,
                                             size_t rows, size_t d_in, size_t d_out) {
    return (attni_product){.m = rows,
                           .n = d_out,
                           .k = d_in,
                           .trans_b = true,
                           .alpha = 1,
                           .a = x,
                           .lda = d_in,
                           .b = w,
                           .ldb = d_in,
                           .c = y,
                           .ldc = d_out,
                           .bias = b};
}

/* dx = dy W           (N,in) = (N,out) (out,in) */
static inline attni_product linear_product_dx(real *dx, const real *dy, const real *w, size_t rows,
                                              size_t d_in, size_t d_out) {
    return (attni_product){.m = rows,
                           .n = d_in,
                           .k = d_out,
                           .alpha = 1,
                           .a = dy,
                           .lda = d_out,
                           .b = w,
                           .ldb = d_in,
                           .c = dx,
                           .ldc = d_in};
}

/* dW += dyᵀ x         (out,in) = (out,N) (N,in) */
static inline attni_product linear_product_dw(real *dw, const real *dy, const real *x, size_t rows,
                                              size_t d_in, size_t d_out) {
    return (attni_product){.m = d_out,
                           .n = d_in,
                           .k = rows,
                           .trans_a = true,
                           .alpha = 1,
                           .beta = 1,
                           .a = dy,
                           .lda = d_out,
                           .b = x,
                           .ldb = d_in,
                           .c = dw,
                           .ldc = d_in};
}

/* db += 1ᵀ dy         (1,out) = (1,N) (N,out); every element of the row of ones is `one` */
static inline attni_product linear_product_db(real *db, const real *dy, size_t rows, size_t d_out) {
    static const real one = 1;
    return (attni_product){.m = 1,
                           .n = d_out,
                           .k = rows,
                           .trans_a = true,
                           .alpha = 1,
                           .beta = 1,
                           .a = &one,
                           .lda = 0,
                           .b = dy,
                           .ldb = d_out,
                           .c = db,
                           .ldc = d_out};
}

#endif
