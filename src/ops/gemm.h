/*
 * gemm.h (internal) - matrix products on one thread and on several.
 *
 *     attni_product y = {.m = rows, .n = d_out, .k = d_in, .trans_b = true, .alpha = 1,
 *                        .a = x, .lda = d_in, .b = w, .ldb = d_in, .c = out, .ldc = d_out};
 *     attni_gemm_parallel(&y, 1, max_threads);
 *
 * The result has the same bits for any number of threads and in every call with the same shape.
 */
#ifndef ATTNI_OPS_GEMM_H
#define ATTNI_OPS_GEMM_H

#include "kernels/gemm.h"

/* One product on the calling thread, inside a parallel region or outside. */
void attni_gemm(const attni_product *product);

/* Independent products, none reading what another writes, on at most max_threads threads (0 = as
 * many as OpenMP would use): C is cut into tiles that depend on the shapes alone, and the tiles of
 * all products are shared out in one parallel region, or done one after the other where the work
 * would not pay for a region. A product that follows one with the same C (the same m, n and ldc)
 * and has beta = 1 is added to it, tile by tile: so a sum of products takes one pass over C. */
void attni_gemm_parallel(const attni_product *products, size_t count, size_t max_threads);

/* What is done to a block of C right after it is written, while it is in the cache. `unit` columns
 * that belong together (one head) are in one block. */
typedef struct attni_after {
    void (*run)(const void *data, real *c, size_t ldc, size_t row, size_t rows, size_t column,
                size_t columns); /* c is the block, row and column its place in C; NULL = nothing */
    const void *data;
    size_t unit; /* at least 1, the same for all products of a call that have one */
} attni_after;

/* The same, where after[i] follows product i, to whose C no other product adds. */
void attni_gemm_parallel_after(const attni_product *products, const attni_after *after,
                               size_t count, size_t max_threads);

/* sums[j] += sum over rows of x[row, j], x (rows, columns) contiguous. */
void attni_column_sums_add(real *sums, const real *x, size_t rows, size_t columns,
                           size_t max_threads);

#endif
