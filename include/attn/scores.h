/*
 * scores.h - scaled, masked scores.
 *
 *     forward    s_ij = scale · (q_i · k_j)  where (i,j) is allowed,  -inf where it is blocked
 *     backward   dq_i = scale · sum_j ds_ij k_j     over allowed j
 *                dk_j = scale · sum_i ds_ij q_i     over allowed i
 *
 * Vaswani et al., "Attention is all you need" (2017), equation 1. Shapes: query (B,H,Lq,d),
 * key (B,Hkv,Lk,d), scores (B,H,Lq,Lk), contiguous.
 *
 * Grouped-query attention (Ainslie et al., "GQA", 2023; with one head, multi-query attention,
 * Shazeer 2019): H / Hkv query heads in a row share a head of keys and values, so that query head h
 * reads head h / (H / Hkv), and dk, dv sum over the group. Nothing is repeated in memory.
 *
 * Statuses of the single operations on an attn_shape, here and in score_terms.h, softmax.h,
 * dropout.h and values.h: ATTN_ERROR_ARGUMENT (a missing array, a d_head of 0, a value outside its
 * range), ATTN_ERROR_SHAPE (heads that are no multiple of num_kv_heads), ATTN_ERROR_OVERFLOW (sizes
 * or strides that wrap). All are found before anything is written. They use as many threads as
 * OpenMP would; thread-safe on different data, the same bits for any number of threads.
 */
#ifndef ATTN_SCORES_H
#define ATTN_SCORES_H

#include <attn/mask.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The sizes of one attention: every array of a core call has its shape made of these. */
typedef struct attn_shape {
    size_t batch;        /* B */
    size_t num_heads;    /* H */
    size_t len_q;        /* Lq */
    size_t len_k;        /* Lk */
    size_t d_head;       /* d, at least 1; the other sizes may be 0 */
    size_t num_kv_heads; /* Hkv, which divides H; 0 = num_heads */
} attn_shape;

/* 1/sqrt(d_head), the scale that keeps the scores of unit-variance queries and keys at variance 1.
 */
ATTN_API double attn_default_scale(size_t d_head);

/* scores (B,H,Lq,Lk) is overwritten. mask may be NULL. */
ATTN_API attn_status attn_scores_forward(attn_real *scores, const attn_real *query,
                                         const attn_real *key, const attn_mask *mask, double scale,
                                         const attn_shape *shape);

/* dquery and dkey are overwritten; either may be NULL. dscores at a blocked pair is not read. */
ATTN_API attn_status attn_scores_backward(attn_real *dquery, attn_real *dkey,
                                          const attn_real *dscores, const attn_real *query,
                                          const attn_real *key, const attn_mask *mask, double scale,
                                          const attn_shape *shape);

#ifdef __cplusplus
}
#endif

#endif
