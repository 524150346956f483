/*
 * kernels.h (internal) - the kernels of one instruction set, in one precision.
 *
 * The files of this folder with a body to vectorise are compiled once per instruction set; table.c
 * gathers what each compilation made. The operations take the table of the running machine:
 *
 *     const attni_kernels *kernels = attni_kernels_get();
 *     kernels->exp(y, x, n);
 *
 * The tests walk all tables that the machine can run. Kernels use one thread, allocate nothing,
 * check nothing and call no library but memcpy and memset.
 */
#ifndef ATTNI_KERNELS_KERNELS_H
#define ATTNI_KERNELS_KERNELS_H

#include "kernels/decode.h"
#include "kernels/fused.h"
#include "kernels/gemm.h"
#include "kernels/rope.h"

#include <attn/isa.h>
#include <stddef.h>

typedef struct attni_kernels {
    attn_isa isa;
    size_t lanes; /* reals in a vector */

    /* y[i] = exp(x[i]) to 2 ulp; 0 where that is not a normal number, +inf where it overflows. */
    void (*exp)(real *y, const real *x, size_t n);

    /* y[i] = tanh(x[i]) to 4 ulp. */
    void (*tanh)(real *y, const real *x, size_t n);

    /* C = alpha · op(A) op(B) + beta · C + bias, see gemm.h. Uses 32 KiB of stack. */
    void (*gemm)(const attni_product *product);

    /* The same for a product of few rows, C = A Bᵀ + bias: op(A) = A, op(B) = Bᵀ, alpha = 1, beta =
     * 0. B is read once, as it lies. */
    void (*few_rows)(const attni_product *product);

    /* Turns the rows of `turn`, the first by `angles`, which are left at the position after the
     * last. Without heads it only steps. */
    void (*rope)(const attni_turn *turn, attni_angles *angles);

    /* m, l and O of the new tokens over the keys in the range, overwritten. scratch:
     * decode_scratch(d, tokens·group) reals, 64-byte aligned. */
    void (*decode)(const attni_decode_head *head, attni_range keys, real *scratch);
    size_t (*decode_scratch)(size_t d_head, size_t rows);

    /* Reads x as fast as may be, but for a rest below eight vectors; a value that depends on it. */
    real (*read_all)(const real *x, size_t n);

    /* Keeps the multiply-add units busy with `rounds` rounds of work that stays in registers,
     * leaves a value that depends on all of it, returns the floating-point operations done. */
    double (*fma_chains)(real *sum, size_t rounds);

    /* words (n,4): attn_philox4x32 of the counters (c0, c1 + i, c2, c3). */
    void (*philox)(uint32_t *words, const uint32_t counter[4], uint64_t seed, size_t n);

    /* O, m and l of the queries in the range. scratch: fused_forward_scratch(d) reals, 64-byte
     * aligned. */
    void (*fused_forward)(const attni_fused_head *head, attni_range queries, real *scratch);
    size_t (*fused_forward_scratch)(size_t d_head);

    /* What the pairs of these queries and these keys contribute: to dQ in the rows of the queries,
     * to dK and dV in the rows of the keys. */
    void (*fused_backward)(const attni_fused_head *head, const attni_fused_grads *grads,
                           attni_range queries, attni_range keys, real *scratch);
    size_t (*fused_backward_scratch)(size_t d_head);

    /* Rows of P (Lq,Lk), before dropout, from the m and l of a forward. */
    void (*fused_weights)(const attni_fused_head *head, attni_range queries, real *weights,
                          real *scratch);
    size_t (*fused_weights_scratch)(size_t d_head);
    size_t (*fused_queries_per_pass)(size_t d_head); /* that share one pass over the keys */
    size_t fused_query_tile, fused_key_tile;
} attni_kernels;

/* The table of the instruction set in use (attn_isa_current). */
const attni_kernels *attni_kernels_get(void);

/* The table of a given set; NULL if this machine or build cannot run it. */
const attni_kernels *attni_kernels_for(attn_isa isa);

#endif
