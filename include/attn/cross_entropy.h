/*
 * cross_entropy.h - the mean loss of next-token prediction, straight from the logits.
 *
 *     forward    loss  = 1/n · sum over counted rows i of (lse_i - s_i,target)
 *                lse_i = log sum_j exp(s_ij)
 *     backward   ds_ij = dloss/n · (p_ij - [j = target_i]),   p = softmax(s)
 *
 * n counts the rows whose target is not -1. Rows with target -1 take no part: they add nothing to
 * the loss and have gradient 0. If no row counts, the loss is 0 and so is every gradient.
 *
 * The row maximum m is taken out before anything is exponentiated, and the loss of a row is
 * log sum exp(s_j - m) + (m - s_target): right for logits of any finite size, where the logarithm
 * of a softmax would be -inf.
 *
 * Shapes: logits (rows, vocab), targets (rows), contiguous. Thread-safe on different data.
 */
#ifndef ATTN_CROSS_ENTROPY_H
#define ATTN_CROSS_ENTROPY_H

#include <attn/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_loss {
    double mean;    /* nats per counted row; 0 if none counts */
    size_t counted; /* rows with a target */
    size_t correct; /* of them, rows whose largest logit (the first, if several) is the target */
} attn_loss;

/* ATTN_ERROR_ARGUMENT names the first target outside -1 .. vocab - 1, and *loss is unchanged. */
ATTN_API attn_status attn_cross_entropy_forward(attn_loss *loss, const attn_real *logits,
                                                const int32_t *targets, size_t rows, size_t vocab);

/* dlogits (rows, vocab) is overwritten and may be the array `logits` itself. `dloss` is the
 * gradient that arrives at the mean: 1 where the mean is what is minimised. */
ATTN_API attn_status attn_cross_entropy_backward(attn_real *dlogits, double dloss,
                                                 const attn_real *logits, const int32_t *targets,
                                                 size_t rows, size_t vocab);

#ifdef __cplusplus
}
#endif

#endif
