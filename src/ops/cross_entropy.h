/*
 * cross_entropy.h (internal) - as attn/cross_entropy.h, for callers that have validated and that
 * bound the threads.
 */
#ifndef ATTNI_OPS_CROSS_ENTROPY_H
#define ATTNI_OPS_CROSS_ENTROPY_H

#include "base/real.h"

#include <attn/cross_entropy.h>

/* Refuses shapes that wrap and targets outside -1 .. vocab - 1. */
attn_status attni_cross_entropy_check(const char *function, const int32_t *targets, size_t rows,
                                      size_t vocab);

void attni_cross_entropy_forward(attn_loss *loss, const real *logits, const int32_t *targets,
                                 size_t rows, size_t vocab, size_t max_threads);
void attni_cross_entropy_backward(real *dlogits, double dloss, const real *logits,
                                  const int32_t *targets, size_t rows, size_t vocab,
                                  size_t max_threads);

#endif
