/*
 * bodies.h (internal) - the kernels of this compilation's instruction set, for table.c.
 */
#ifndef ATTNI_KERNELS_BODIES_H
#define ATTNI_KERNELS_BODIES_H

#include "kernels/isa_name.h"
#include "kernels/kernels.h"

void KERNEL(exp)(real *y, const real *x, size_t n);
void KERNEL(fused_forward)(const attni_fused_head *head, attni_range queries, real *scratch);
size_t KERNEL(fused_forward_scratch)(size_t d_head);
void KERNEL(fused_backward)(const attni_fused_head *head, const attni_fused_grads *grads,
                            attni_range queries, attni_range keys, real *scratch);
size_t KERNEL(fused_backward_scratch)(size_t d_head);
void KERNEL(fused_weights)(const attni_fused_head *head, attni_range queries, real *weights,
                           real *scratch);
size_t KERNEL(fused_weights_scratch)(size_t d_head);
size_t KERNEL(fused_queries_per_pass)(size_t d_head);
void KERNEL(gemm)(const attni_product *product);
void KERNEL(rope)(const attni_turn *turn, attni_angles *angles);
void KERNEL(tanh)(real *y, const real *x, size_t n);
void KERNEL(decode)(const attni_decode_head *head, attni_range keys, real *scratch);
size_t KERNEL(decode_scratch)(size_t d_head, size_t rows);
void KERNEL(few_rows)(const attni_product *product);
real KERNEL(read_all)(const real *x, size_t n);
double KERNEL(fma_chains)(real *sum, size_t rounds);
void KERNEL(philox)(uint32_t *words, const uint32_t counter[4], uint64_t seed, size_t n);

#endif
