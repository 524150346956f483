/*
 * bodies.h (internal) - the kernels of this compilation's instruction set, for table.c.
 */
#ifndef ATTNI_KERNELS_BODIES_H
#define ATTNI_KERNELS_BODIES_H

#include "kernels/isa_name.h"
#include "kernels/kernels.h"

void KERNEL(exp)(real *y, const real *x, size_t n);
void KERNEL(gemm)(const attni_product *product);
double KERNEL(fma_chains)(real *sum, size_t rounds);

#endif
