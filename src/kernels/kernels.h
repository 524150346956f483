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

#include "base/real.h"

#include "kernels/gemm.h"

#include <attn/isa.h>
#include <stddef.h>

typedef struct attni_kernels {
    attn_isa isa;
    size_t lanes; /* reals in a vector */

    /* y[i] = exp(x[i]) to 2 ulp; 0 where that is not a normal number, +inf where it overflows. */
    void (*exp)(real *y, const real *x, size_t n);

    /* C = alpha · op(A) op(B) + beta · C + bias, see gemm.h. Uses 32 KiB of stack. */
    void (*gemm)(const attni_product *product);

    /* Keeps the multiply-add units busy with `rounds` rounds of work that stays in registers,
     * leaves a value that depends on all of it, returns the floating-point operations done. */
    double (*fma_chains)(real *sum, size_t rounds);
} attni_kernels;

/* The table of the instruction set in use (attn_isa_current). */
const attni_kernels *attni_kernels_get(void);

/* The table of a given set; NULL if this machine or build cannot run it. */
const attni_kernels *attni_kernels_for(attn_isa isa);

#endif
