/*
 * gemm.h (internal) - one matrix product, as the kernels and the operations on them describe it.
 *
 *     C = alpha · op(A) op(B) + beta · C + bias        (m,n) = (m,k) (k,n) + (m,n) + (1,n)
 *
 * All matrices are row-major; lda, ldb, ldc count reals from one row to the next as they lie in
 * memory. Pointers may have any alignment that a real has. C overlaps nothing else.
 */
#ifndef ATTNI_KERNELS_GEMM_H
#define ATTNI_KERNELS_GEMM_H

#include "base/real.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct attni_product {
    size_t m, n, k;
    bool trans_a;  /* A lies as (m,k), transposed as (k,m) */
    bool trans_b;  /* B lies as (k,n), transposed as (n,k) */
    real alpha;    /* 0, or k = 0: A and B are not read */
    real beta;     /* 0: C is not read, what was there (NaN) is gone */
    const real *a; /* any of the sizes may be 0 */
    size_t lda;
    const real *b;
    size_t ldb;
    real *c;
    size_t ldc;
    const real *bias; /* (n), added to every row of C; NULL = none */
} attni_product;

#endif
